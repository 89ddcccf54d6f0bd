//! The `vsphere` driver: VMs of a vCenter.
//!
//! A VM is a clone of a template in one folder, in which its name is unique: of two clones with one name the second is refused. The mark
//! is in its extra configuration, under a key that its guest can neither read nor write; guestinfo values carry the seed in and the
//! guest's words out. Nothing is made beside the VM, so nothing is left when it is gone.

mod client;
mod connection;
mod driver;
mod fault;
mod found;
mod image;
mod place;
mod session;
mod soap;
#[cfg(test)]
mod tests;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use self::client::{Client, TaskState};
use self::fault::{DUPLICATE_NAME, Error, Fault, NOT_FOUND};
use self::found::{Found, Known, Memory, name_of};
use self::image::{Asked, Image};
use self::place::{Network, Place};
pub use self::session::Sessions;
use self::soap::Reference;
use super::login::Login;
use super::wire::Wire;
use super::xml::element;
use super::{Caps, DriverError, DriverStep};
use crate::api::hypervisor::Vsphere;
use crate::vm::{Journal, MachineKey, Seed, SeedKind, VmSpec};

const CAPS: Caps = Caps {
    driver: "vsphere",
    seeds: &[SeedKind::GuestInfo],
    tick: Duration::from_secs(20),
    deadline: Duration::from_secs(60),
    reads: 16,
    changes: 8,
};
/// What was found of images, networks and places is believed for so long.
const FRESH: Duration = Duration::from_secs(60);
/// Between two looks at a clone, or at a guest that shuts down.
const LOOK: Duration = Duration::from_secs(3);
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How long a call waits for a task that is usually short, and when it looks first; then less and less often.
const SHORT_TASK: Duration = Duration::from_secs(20);
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// Key of the journal: the task that clones.
const CLONE: &str = "clone";

/// One placement in a vCenter.
pub struct VsphereDriver {
    settings: Vsphere,
    client: Arc<Client>,
    place: Mutex<Option<(Place, Instant)>>,
    images: Mutex<Vec<(Image, Instant)>>,
    networks: Mutex<Vec<(String, Network, Instant)>>,
    known: Mutex<Known>,
}

impl VsphereDriver {
    /// Nothing is asked of the vCenter before the first call. Placements with the same address and login share a session.
    pub fn new(settings: Vsphere, login: &Login, sessions: &Sessions, wire: Wire) -> Result<Self, DriverError> {
        let client = Arc::new(Client::new(sessions.get(&settings.server, login)?, wire));
        Ok(Self { settings, client, place: Mutex::default(), images: Mutex::default(), networks: Mutex::default(), known: Mutex::default() })
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

    async fn image(&self, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        images.retain(|(_, since)| since.elapsed() < FRESH);
        if let Some((image, _)) = images.iter().find(|(image, _)| image.name == name) {
            return Ok(image.clone());
        }
        let image = Image::find(&self.client, &self.settings, name).await?;
        images.push((image.clone(), Instant::now()));
        Ok(image)
    }

    /// The networks of a machine's interfaces; `None`: that of the image's interface.
    async fn networks(&self, spec: &VmSpec) -> Result<Vec<Option<Network>>, DriverError> {
        let mut known = self.networks.lock().await;
        known.retain(|(_, _, since)| since.elapsed() < FRESH);
        let mut networks = Vec::new();
        for nic in &spec.nics {
            let Some(name) = nic.network.as_deref().or(self.settings.network.as_deref()) else {
                networks.push(None);
                continue;
            };
            let network = match known.iter().find(|(known, _, _)| known == name) {
                Some((_, network, _)) => network.clone(),
                None => {
                    let datacenter = self.place().await?.datacenter;
                    let network = Network::find(&self.client, &datacenter, name).await?;
                    known.push((name.to_owned(), network.clone(), Instant::now()));
                    network
                }
            };
            networks.push(Some(network));
        }
        Ok(networks)
    }

    /// The VM of a machine, whoever made what has its name or UUID. `None` proves that there is none: neither with its UUID in the whole
    /// vCenter, nor with its name in the folder, where it is seen while it is being cloned.
    async fn find(&self, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        let known = self.known.lock().await.get(key.vm);
        if let Some(Memory::Is(vm)) = known {
            if let Some(found) = found::read(&self.client, &vm).await? {
                return Ok(Some(found));
            }
            self.known.lock().await.forget(key.vm);
        }
        let by_uuid = match self.client.find_vm(key.vm.0).await? {
            Some(vm) => self.read(key, &vm).await?,
            None => None,
        };
        if by_uuid.as_ref().is_some_and(|found| found.is_ours(key)) {
            return Ok(by_uuid);
        }
        let folder = self.place().await?.folder;
        let by_name = match self.client.find_child(&folder, &name_of(key)).await? {
            Some(vm) => self.read(key, &vm).await?,
            None => None,
        };
        Ok(by_name.or(by_uuid))
    }

    async fn read(&self, key: &MachineKey, vm: &Reference) -> Result<Option<Found>, DriverError> {
        let found = found::read(&self.client, vm).await?;
        if found.as_ref().is_some_and(|found| found.is_ours(key)) {
            self.known.lock().await.note(key.vm, Memory::Is(vm.clone()));
        }
        Ok(found)
    }

    /// What has become of the clone that the journal names. While it is made, that is one request for each look.
    async fn cloned(&self, key: &MachineKey, journal: &Journal) -> Result<Cloned, DriverError> {
        let Some(task) = journal.get(CLONE) else { return Ok(Cloned::Unknown) };
        if let Some(Memory::Is(_) | Memory::Gone) = self.known.lock().await.get(key.vm) {
            return Ok(Cloned::Unknown);
        }
        Ok(match self.client.task(task).await? {
            TaskState::Running => Cloned::Running,
            TaskState::Succeeded(Some(vm)) => self.read(key, &vm).await?.map_or(Cloned::Unknown, |found| Cloned::Is(Box::new(found))),
            TaskState::Succeeded(None) | TaskState::Failed(_) | TaskState::Forgotten => Cloned::Unknown,
        })
    }

    /// When to look at a clone again: after as long as it has taken so far.
    async fn next_look(&self, key: &MachineKey) -> DriverStep {
        let after = match self.known.lock().await.get(key.vm) {
            Some(Memory::Cloning(since)) => since.elapsed().clamp(SHORTEST_LOOK, LONGEST_LOOK),
            _ => LOOK,
        };
        DriverStep::Wait { after }
    }

    async fn find_ours(&self, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        match self.find(key).await? {
            Some(found) if !found.is_unknown && !found.is_ours(key) => Err(self.conflict(&found.name)),
            found => Ok(found),
        }
    }

    fn conflict(&self, vm: &str) -> DriverError {
        DriverError::Conflict(format!("VM {vm} on {} has no mark of CAPW for this machine: it is left alone", self.client.server()))
    }

    async fn begin_clone(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal) -> Result<DriverStep, DriverError> {
        let Some(values) = found::values(seed) else { return Err(no_drive()) };
        let (place, image, networks) = (self.place().await?, self.image(&spec.image).await?, self.networks(spec).await?);
        let asked = Asked { place: &place, mode: self.settings.clone, networks: &networks, values };
        let wanted = image.clone_spec(key, spec, &asked)?;
        let task = match self.client.clone_vm(image.vm(), &place.folder, &name_of(key), &wanted).await {
            Err(error) if error.is(&[NOT_FOUND]) => {
                // Image or place were made anew: look for them at the next try.
                self.images.lock().await.clear();
                *self.place.lock().await = None;
                return Err(DriverError::Transient("the image, folder, pool or datastore was there and is not".into()));
            }
            Err(Error::Fault(fault)) if fault.is(&[DUPLICATE_NAME]) => return Err(self.duplicate(key).await),
            task => task?,
        };
        let mut journal = journal.clone();
        journal.insert(CLONE.to_owned(), task);
        self.known.lock().await.note(key.vm, Memory::Cloning(Instant::now()));
        Ok(DriverStep::Started { journal })
    }

    /// Something has the name already: another process of ours was faster, or it is not ours.
    async fn duplicate(&self, key: &MachineKey) -> DriverError {
        match self.find(key).await {
            Ok(Some(found)) if !found.is_unknown && !found.is_ours(key) => self.conflict(&found.name),
            Ok(Some(_)) => DriverError::Transient("the VM was made at the same time by another process".into()),
            Ok(None) => DriverError::Denied(format!(
                "the folder on {} has something named {} that the credentials do not see: grant System.Read on the folder, with propagation",
                self.client.server(),
                name_of(key)
            )),
            Err(error) => error,
        }
    }

    async fn clone_failed(&self, key: &MachineKey, journal: &Journal, fault: Option<Fault>) -> DriverStep {
        let error = match fault {
            Some(fault) if fault.is(&[DUPLICATE_NAME]) => self.duplicate(key).await,
            Some(fault) => match DriverError::from(fault) {
                DriverError::Invalid(text) => DriverError::Invalid(format!("the VM cannot be cloned: {text}")),
                error => error,
            },
            None => DriverError::Transient("the VM was cloned and is not there: it is made again".into()),
        };
        let mut journal = journal.clone();
        journal.remove(CLONE);
        DriverStep::Failed { journal, error }
    }

    /// Waits for a short task; `false`: it goes on.
    async fn is_done(&self, task: Result<String, Error>, harmless: &[&str]) -> Result<bool, DriverError> {
        let is_harmless = |fault: &Fault| fault.is(harmless) || fault.is(&[NOT_FOUND]);
        let task = match task {
            Err(Error::Fault(fault)) if is_harmless(&fault) => return Ok(true),
            task => task?,
        };
        let (start, mut look) = (Instant::now(), FIRST_LOOK);
        loop {
            sleep(look).await;
            match self.client.task(&task).await? {
                TaskState::Succeeded(_) | TaskState::Forgotten => return Ok(true),
                TaskState::Failed(fault) if is_harmless(&fault) => return Ok(true),
                TaskState::Failed(fault) => return Err(fault.into()),
                TaskState::Running if start.elapsed() > SHORT_TASK => return Ok(false),
                TaskState::Running => look = (look * 5).min(LOOK),
            }
        }
    }

    /// The guest gets these values, if it has not been given them already.
    async fn reseed(&self, found: &Found, seed: &Seed) -> Result<(), DriverError> {
        let Some(values) = found::values(seed) else { return Err(no_drive()) };
        if found.seed.is_empty() || found.seed == found::digest(values) {
            return Ok(());
        }
        let spec = element("spec").with_all(found::seed(values));
        self.is_done(self.client.reconfigure(&found.vm, &spec).await, &[]).await.map(|_| ())
    }
}

/// What has become of a clone.
enum Cloned {
    Running,
    Is(Box<Found>),
    /// Only a look can say.
    Unknown,
}

fn no_drive() -> DriverError {
    DriverError::Invalid("vSphere machines get their data by guestinfo: set spec.channel of the WindowsBootstrapConfig to GuestInfo".into())
}
