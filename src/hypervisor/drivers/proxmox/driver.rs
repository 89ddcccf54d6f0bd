//! The driver of the VMs of one WindowsHypervisor in a cluster: its connection, and what it caches.

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::Client;
use super::connection::Connection;
use super::fault::Refusal;
use super::found::Known;
use super::image::Image;
use super::owners::Owners;
use super::place::Place;
use super::words::Words;
use crate::api::hypervisor::Proxmox;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::{FRESH, Fresh, listed};
use crate::hypervisor::login::Login;
use crate::hypervisor::wire::Wire;
use crate::vm::{Thing, VmSpec};

/// The VMs of one WindowsHypervisor in a cluster.
pub struct ProxmoxDriver {
    pub(super) settings: Proxmox,
    pub(super) client: Client,
    /// The cluster that the driver saw first, and when and at which server it was seen last.
    identity: Mutex<Option<(String, Instant, String)>>,
    pub(super) place: Mutex<Option<(Place, Instant)>>,
    pub(super) images: Mutex<Fresh<Image>>,
    networks: Mutex<Fresh<Vec<String>>>,
    /// The task of the last full clone to each storage: two concurrent clones would wait for each other until one fails.
    pub(super) copies: Mutex<std::collections::HashMap<String, String>>,
    pub(super) known: Mutex<Known>,
    pub(super) owners: Mutex<Owners>,
    pub(super) words: Mutex<Words>,
}

impl ProxmoxDriver {
    /// Creates the driver. It sends nothing to the cluster before the first call.
    pub fn new(settings: Proxmox, login: &Login, wire: Wire) -> Result<Self, DriverError> {
        let client = Client::new(Connection::new(&settings.servers, login)?, wire);
        Ok(Self {
            settings,
            client,
            identity: Mutex::default(),
            place: Mutex::default(),
            images: Mutex::default(),
            networks: Mutex::default(),
            copies: Mutex::default(),
            known: Mutex::default(),
            owners: Mutex::default(),
            words: Mutex::default(),
        })
    }

    pub(super) async fn place(&self) -> Result<Place, DriverError> {
        let mut place = self.place.lock().await;
        match &*place {
            Some((place, since)) if since.elapsed() < FRESH => return Ok(place.clone()),
            _ => {}
        }
        let found = Place::find(&self.client, &self.settings).await?;
        *place = Some((found.clone(), Instant::now()));
        Ok(found)
    }

    /// Returns the cluster's identity. The driver reads it again after a while, and when another server answers: the absence of a VM is
    /// trusted only in the cluster in which the VM was created.
    pub(super) async fn identity(&self) -> Result<String, DriverError> {
        let mut known = self.identity.lock().await;
        if let Some((id, since, server)) = &*known
            && since.elapsed() < FRESH
            && server == self.client.server()
        {
            return Ok(id.clone());
        }
        let found = self.authority().await?;
        let server = self.client.server().to_owned();
        if let Some((id, ..)) = known.as_ref().filter(|(id, ..)| *id != found) {
            return Err(DriverError::EndpointChanged(format!(
                "the cluster at {server} has the authority {found}, and had {id} before: another one answers, or it was reinstalled"
            )));
        }
        *known = Some((found.clone(), Instant::now(), server));
        Ok(found)
    }

    /// Reads the cluster's authority from any node, because some nodes may not answer.
    async fn authority(&self) -> Result<String, DriverError> {
        let mut down = None;
        for node in &self.settings.nodes {
            match self.client.authority(node).await {
                Err(error) if error.is(Refusal::is_down) => down = Some(error),
                shown => {
                    return shown?.ok_or_else(|| {
                        DriverError::Invalid(format!("node {node} shows no certificate of its cluster (pve-root-ca.pem): is it one of Proxmox VE?"))
                    });
                }
            }
        }
        Err(down.map_or_else(|| DriverError::Invalid("spec.proxmox.nodes names no node".into()), DriverError::from))
    }

    pub(super) async fn image(&self, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        if let Some(image) = images.get(name) {
            return Ok(image);
        }
        let image = Image::find(&self.client, name).await?;
        images.put(name, image.clone());
        Ok(image)
    }

    /// Checks that every named network exists on every node.
    pub(super) async fn check_networks(&self, spec: &VmSpec) -> Result<(), DriverError> {
        let named = spec.nics.iter().filter_map(|nic| nic.network.as_deref().or(self.settings.network.as_deref()));
        let mut known = self.networks.lock().await;
        for network in named {
            let bridge = bridge_of(network)?;
            for node in self.place().await?.nodes {
                let there = match known.get(&node.name) {
                    Some(there) => there,
                    None => {
                        let there = self.client.networks(&node.name).await?;
                        known.put(&node.name, there.clone());
                        there
                    }
                };
                if !there.iter().any(|name| name == bridge) {
                    known.clear();
                    let text = format!(
                        "node {} has no network {bridge:?} that the token may use (SDN.Use on it); it has {}: correct spec.networks of the machine, or spec.networks or spec.proxmox.network of the WindowsHypervisor",
                        node.name,
                        listed(there.iter().map(String::as_str))
                    );
                    return Err(DriverError::Missing { thing: Thing::Network, text });
                }
            }
        }
        Ok(())
    }
}

/// Returns the bridge of `BRIDGE` or `BRIDGE,tag=VLAN`; a machine can set no other option of an interface.
fn bridge_of(network: &str) -> Result<&str, DriverError> {
    let (bridge, tag) = network.split_once(',').map_or((network, None), |(bridge, rest)| (bridge, Some(rest)));
    let is_name = bridge.starts_with(|c: char| c.is_ascii_alphabetic()) && bridge.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_tag = tag.is_none_or(|tag| tag.strip_prefix("tag=").and_then(|tag| tag.parse().ok()).is_some_and(|tag: u16| (1..=4094).contains(&tag)));
    if is_name && is_tag {
        return Ok(bridge);
    }
    Err(DriverError::Invalid(format!(
        "network {network:?} is no bridge of Proxmox VE: write it like vmbr0 or vmbr0,tag=114 in spec.networks of the machine or the WindowsHypervisor"
    )))
}
