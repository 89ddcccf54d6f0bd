//! The driver of one placement in a vCenter: its connection, and what it caches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::alarm_names::AlarmNames;
use super::client::Client;
use super::found::Known;
use super::image::Image;
use super::place::{Network, Place};
use super::session::Sessions;
use crate::api::hypervisor::Vsphere;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::Fresh;
use crate::hypervisor::login::Login;
use crate::hypervisor::shutdowns::Shutdowns;
use crate::hypervisor::wire::Wire;
use crate::vm::VmSpec;

/// The time between two polls of a clone, or of a guest that shuts down.
pub const POLL: Duration = Duration::from_secs(3);
/// How long the found places are cached. Each description finds them again, and so does a request that fails because one was deleted.
const PLACES: Duration = Duration::from_secs(900);
/// The journal's key for the task that clones.
pub const CLONE: &str = "clone";

/// One placement in a vCenter.
pub struct VsphereDriver {
    pub(super) settings: Vsphere,
    pub(super) client: Arc<Client>,
    pub(super) place: Mutex<Option<(Place, Instant)>>,
    pub(super) images: Mutex<Fresh<Image>>,
    pub(super) networks: Mutex<Fresh<Network>>,
    pub(super) known: Mutex<Known>,
    pub(super) alarms: AlarmNames,
    pub(super) shutdowns: Shutdowns,
    /// When all VMs were last read by a request.
    pub(super) listed: Mutex<Option<Instant>>,
}

impl VsphereDriver {
    /// Sends nothing to the vCenter before the first call. Placements with the same address and login share a session.
    pub fn new(settings: Vsphere, login: &Login, sessions: &Sessions, wire: Wire) -> Result<Self, DriverError> {
        let client = Arc::new(Client::new(sessions.get(&settings.server, login)?, wire));
        Ok(Self {
            settings,
            client,
            place: Mutex::default(),
            images: Mutex::default(),
            networks: Mutex::default(),
            known: Mutex::default(),
            alarms: AlarmNames::default(),
            shutdowns: Shutdowns::default(),
            listed: Mutex::default(),
        })
    }

    pub(super) async fn place(&self) -> Result<Place, DriverError> {
        let mut place = self.place.lock().await;
        match &*place {
            Some((place, since)) if since.elapsed() < PLACES => return Ok(place.clone()),
            _ => {}
        }
        let found = Place::find(&self.client, &self.settings).await?;
        *place = Some((found.clone(), Instant::now()));
        Ok(found)
    }

    pub(super) async fn image(&self, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        if let Some(image) = images.get(name) {
            return Ok(image);
        }
        let image = Image::find(&self.client, &self.settings, name).await?;
        images.put(name, image.clone());
        Ok(image)
    }

    /// The networks of a machine's interfaces; `None`: the network of the image's interface.
    pub(super) async fn networks(&self, spec: &VmSpec) -> Result<Vec<Option<Network>>, DriverError> {
        let mut known = self.networks.lock().await;
        let mut networks = Vec::new();
        for nic in &spec.nics {
            let Some(name) = nic.network.as_deref().or(self.settings.network.as_deref()) else {
                networks.push(None);
                continue;
            };
            let network = match known.get(name) {
                Some(network) => network,
                None => {
                    let datacenter = self.place().await?.datacenter;
                    let network = Network::find(&self.client, &datacenter, name).await?;
                    known.put(name, network.clone());
                    network
                }
            };
            networks.push(Some(network));
        }
        Ok(networks)
    }

    pub(super) fn conflict(&self, vm: &str) -> DriverError {
        DriverError::Conflict(format!("VM {vm} on {} has no mark of CAPW for this machine: it is left alone", self.client.server()))
    }
}
