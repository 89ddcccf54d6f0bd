//! The `proxmox` driver: VMs of a Proxmox VE cluster.
//!
//! A VM is a clone of a template under an id that is stored before it is used, because the id is the only thing that Proxmox VE keeps
//! unique. The mark is in the description, which the request to clone sets; a tag shows it in listings. Besides the VM there is one file,
//! its configuration drive, named by the VM's UUID. Long work is a task of a node, which the driver polls.

mod client;
pub mod connection;
mod driver;
mod fault;
mod found;
mod hardware;
mod image;
mod listing;
mod place;
mod steps;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use self::client::{Client, Location, TaskState};
use self::connection::Connection;
use self::fault::{Error, Refusal};
use self::found::{Found, Known, name_of};
use self::image::Image;
use self::listing::Owners;
use self::place::Place;
use self::words::Words;
use super::fresh::{FRESH, Fresh, listed};
use super::login::Login;
use super::wire::Wire;
use super::{Caps, DriverError};
use crate::api::hypervisor::Proxmox;
use crate::vm::{Journal, MachineKey, SeedKind, Thing, VmSpec};

const CAPS: Caps =
    Caps { driver: "proxmox", seeds: &[SeedKind::Drive], tick: Duration::from_secs(15), deadline: Duration::from_secs(60), reads: 8, changes: 4 };
/// The time between two polls of a clone, or of a guest that shuts down.
const POLL: Duration = Duration::from_secs(3);
/// How long a call waits for a task that is usually short, and when it polls first; later polls are less and less frequent.
const SHORT_TASK: Duration = Duration::from_secs(20);
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// The keys of the journal: the id of the VM, the node that the VM is created on, and the task that creates or removes the VM.
const VMID: &str = "vmid";
const NODE: &str = "node";
const TASK: &str = "task";

/// The VMs of one WindowsHypervisor in a cluster.
pub struct ProxmoxDriver {
    settings: Proxmox,
    client: Client,
    /// The cluster that the driver saw first, and when and at which server it was seen last.
    identity: Mutex<Option<(String, Instant, String)>>,
    place: Mutex<Option<(Place, Instant)>>,
    images: Mutex<Fresh<Image>>,
    networks: Mutex<Fresh<Vec<String>>>,
    /// The task of the last full clone to each storage: two concurrent clones would wait for each other until one fails.
    copies: Mutex<std::collections::HashMap<String, String>>,
    known: Mutex<Known>,
    owners: Mutex<Owners>,
    words: Mutex<Words>,
}

/// The result of a search for a machine's VM.
enum Seek {
    Nothing,
    Ours(Box<Found>),
    /// A VM in the place of the machine's VM that is not ours.
    Foreign(Box<Found>),
    /// A VM with the reserved id that does not name its owner: it is being created or removed.
    Undecided(Location),
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

    async fn place(&self) -> Result<Place, DriverError> {
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
    async fn identity(&self) -> Result<String, DriverError> {
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

    async fn image(&self, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        if let Some(image) = images.get(name) {
            return Ok(image);
        }
        let image = Image::find(&self.client, name).await?;
        images.put(name, image.clone());
        Ok(image)
    }

    /// Checks that every named network exists on every node.
    async fn check_networks(&self, spec: &VmSpec) -> Result<(), DriverError> {
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

    /// Finds the VM with the id, name or UUID of a machine's VM. `Nothing` proves that there is none: its own configuration does not exist,
    /// and no VM of this cluster has its tag or name.
    async fn seek(&self, key: &MachineKey, journal: &Journal) -> Result<Seek, DriverError> {
        let reserved = reserved(journal);
        let remembered = self.known.lock().await.get(&key.vm).cloned().or(reserved.clone());
        if let Some(at) = &remembered {
            match self.client.config(at).await {
                Ok(Some(config)) => {
                    let found = Found::read(at.clone(), config);
                    if found.is_ours(key) {
                        return Ok(self.note(key, found).await);
                    }
                    if found.is_undecided() {
                        return Ok(Seek::Undecided(at.clone()));
                    }
                }
                Ok(None) => {}
                // With rights through a pool, the token sees a VM when the VM joins the pool: at the end of the clone.
                Err(error) if error.is(Refusal::is_denied) && reserved.as_ref() == Some(at) => return Ok(Seek::Undecided(at.clone())),
                Err(error) => return Err(error.into()),
            }
        }
        self.known.lock().await.remove(&key.vm);
        let (tag, name) = (found::tag(key.vm), name_of(key));
        let moved = |at: &Location| remembered.as_ref().is_some_and(|known| known.vmid == at.vmid && known.node != at.node);
        let mut guests = self.client.guests().await?;
        guests.retain(|guest| guest.is_vm() && (guest.has_tag(&tag) || guest.name == name || moved(&guest.location())));
        // A person's copy may have the name of one of our VMs; only our VM has the name and the tag.
        guests.sort_by_key(|guest| (!(guest.has_tag(&tag) && guest.name == name), guest.vmid));
        let mut foreign = None;
        for at in guests.iter().map(|guest| guest.location()) {
            let Some(config) = self.client.config(&at).await? else { continue };
            let found = Found::read(at, config);
            if found.is_ours(key) {
                return Ok(self.note(key, found).await);
            }
            if found.is_undecided() && moved(&found.at) {
                return Ok(Seek::Undecided(found.at));
            }
            if found.is_in_place_of(key) {
                foreign.get_or_insert(found);
            }
        }
        if let Some(found) = foreign {
            return Ok(Seek::Foreign(Box::new(found)));
        }
        self.identity().await?;
        Ok(Seek::Nothing)
    }

    async fn note(&self, key: &MachineKey, found: Found) -> Seek {
        self.known.lock().await.insert(key.vm, found.at.clone());
        Seek::Ours(Box::new(found))
    }

    async fn seek_ours(&self, key: &MachineKey, journal: &Journal) -> Result<Seek, DriverError> {
        match self.seek(key, journal).await? {
            Seek::Foreign(found) => Err(self.conflict(&found)),
            other => Ok(other),
        }
    }

    fn conflict(&self, found: &Found) -> DriverError {
        DriverError::Conflict(format!(
            "VM {} ({}) on {} has no mark of CAPW for this machine: it is left alone",
            found.at.vmid,
            found.name(),
            found.at.node
        ))
    }

    /// Returns the volume of the configuration drive, as the drives of a VM name it.
    fn volume(&self, key: &MachineKey) -> String {
        format!("{}:iso/{}", self.settings.iso_storage, found::image_of(key.vm))
    }

    /// Returns a node that shows the machine's configuration drive, if the drive exists.
    async fn node_of_image(&self, key: &MachineKey, also: Option<&str>) -> Result<Option<String>, DriverError> {
        let name = found::image_of(key.vm);
        Ok(self.images_of_nodes(also).await?.into_iter().find(|(_, images)| images.contains(&name)).map(|(node, _)| node))
    }

    /// Lists the names of all ISO images, with a node that shows them.
    async fn images_of_nodes(&self, also: Option<&str>) -> Result<Vec<(String, Vec<String>)>, DriverError> {
        let place = self.place().await?;
        let (mut shown, mut down) = (Vec::new(), None);
        for node in place.image_nodes(also) {
            match self.client.images(node, &self.settings.iso_storage).await {
                Err(error) if error.is(Refusal::is_down) => down = Some(error),
                images => {
                    shown.push((node.to_owned(), images?));
                    if place.has_shared_images {
                        return Ok(shown);
                    }
                }
            }
        }
        match down {
            None => Ok(shown),
            Some(error) => {
                // The next call reads the places again, without a node that does not answer.
                *self.place.lock().await = None;
                Err(error.into())
            }
        }
    }

    /// Returns the state of the journal's task.
    async fn task(&self, journal: &Journal) -> Result<Option<TaskState>, DriverError> {
        match journal.get(TASK) {
            Some(task) => Ok(Some(self.client.task(task).await?)),
            None => Ok(None),
        }
    }

    /// Waits for a short task; `false`: the task still runs. A harmless refusal counts as success.
    async fn is_done(&self, task: Result<String, Error>, is_harmless: impl Fn(&Refusal) -> bool) -> Result<bool, DriverError> {
        let task = match task {
            Err(error) if error.is(&is_harmless) => return Ok(true),
            task => task?,
        };
        if task.is_empty() {
            return Ok(true);
        }
        let (start, mut look) = (Instant::now(), FIRST_LOOK);
        loop {
            sleep(look).await;
            match self.client.task(&task).await? {
                TaskState::Succeeded | TaskState::Forgotten => return Ok(true),
                TaskState::Failed(why) if is_harmless(&why) => return Ok(true),
                TaskState::Failed(why) => return Err(why.into()),
                TaskState::Running if start.elapsed() > SHORT_TASK => return Ok(false),
                TaskState::Running => look = (look * 5).min(POLL),
            }
        }
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

/// Returns the location that the journal reserves for the VM.
fn reserved(journal: &Journal) -> Option<Location> {
    Some(Location { node: journal.get(NODE)?.clone(), vmid: journal.get(VMID)?.parse().ok()? })
}

/// Returns the journal with that location reserved for the VM.
fn reserve(journal: &Journal, at: &Location) -> Journal {
    let mut journal = without_task(journal);
    journal.insert(NODE.to_owned(), at.node.clone());
    journal.insert(VMID.to_owned(), at.vmid.to_string());
    journal
}

fn with_task(journal: &Journal, task: String) -> Journal {
    let mut journal = journal.clone();
    journal.insert(TASK.to_owned(), task);
    journal
}

fn without_task(journal: &Journal) -> Journal {
    let mut journal = journal.clone();
    journal.remove(TASK);
    journal
}
