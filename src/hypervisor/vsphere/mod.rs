//! The `vsphere` driver: VMs of a vCenter.
//!
//! A VM is a clone of a template in one folder, in which its name is unique: the vCenter refuses a second clone of the name. The mark
//! is in its extra configuration, under a key that its guest can neither read nor write; guestinfo values carry the seed in and the
//! guest's reports out. A seed may also be a CD, whose file is in the VM's own directory. Nothing is created outside the VM, so nothing is
//! left after its deletion.
//!
//! The vCenter pushes changes ([`updates`], [`mirror`]), so that observing and waiting cost no requests. Cached state is read again
//! before anything is destroyed; without updates, all state is requested.

mod alarms;
mod client;
mod connection;
mod drive;
mod driver;
mod fault;
mod found;
mod group;
mod image;
mod library;
mod look;
mod mirror;
mod place;
mod rest;
mod session;
mod soap;
#[cfg(test)]
mod tests;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use self::client::Client;
use self::drive::Slot;
use self::fault::{DUPLICATE_NAME, Error, FILE_NOT_FOUND, Fault, NOT_FOUND};
use self::found::{Found, Known, Memory, name_of};
use self::group::Group;
use self::image::{Asked, Image};
use self::place::{Network, Place};
pub use self::session::Sessions;
use self::soap::Reference;
use super::fresh::Fresh;
use super::login::Login;
use super::shutdowns::Shutdowns;
use super::wire::Wire;
use super::xml::element;
use super::{Caps, DriverError, DriverStep};
use crate::api::hypervisor::Vsphere;
use crate::bootstrap::delivery::SeedImage;
use crate::vm::{Journal, MachineKey, Seed, SeedKind, VmSpec};

const CAPS: Caps = Caps {
    driver: "vsphere",
    seeds: &[SeedKind::GuestInfo, SeedKind::Drive],
    tick: Duration::from_secs(20),
    deadline: Duration::from_secs(60),
    reads: 16,
    changes: 8,
};
/// The time between two polls of a clone, or of a guest that shuts down.
const POLL: Duration = Duration::from_secs(3);
/// How long the found places are cached. Each description finds them again, and so does a request that fails because one was deleted.
const PLACES: Duration = Duration::from_secs(900);
/// How many times the driver tries to put a VM into a group that others change at the same time.
const GROUP_TRIES: u32 = 4;
/// The journal's key for the task that clones.
const CLONE: &str = "clone";

/// One placement in a vCenter.
pub struct VsphereDriver {
    settings: Vsphere,
    client: Arc<Client>,
    place: Mutex<Option<(Place, Instant)>>,
    images: Mutex<Fresh<Image>>,
    networks: Mutex<Fresh<Network>>,
    known: Mutex<Known>,
    alarms: alarms::Names,
    shutdowns: Shutdowns,
    /// When all VMs were last read by a request.
    listed: Mutex<Option<Instant>>,
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
            alarms: alarms::Names::default(),
            shutdowns: Shutdowns::default(),
            listed: Mutex::default(),
        })
    }

    async fn place(&self) -> Result<Place, DriverError> {
        let mut place = self.place.lock().await;
        match &*place {
            Some((place, since)) if since.elapsed() < PLACES => return Ok(place.clone()),
            _ => {}
        }
        let found = Place::find(&self.client, &self.settings).await?;
        *place = Some((found.clone(), Instant::now()));
        Ok(found)
    }

    async fn image(&self, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        if let Some(image) = images.get(name) {
            return Ok(image);
        }
        let image = Image::find(&self.client, &self.settings, name).await?;
        images.put(name, image.clone());
        Ok(image)
    }

    /// The networks of a machine's interfaces; `None`: the network of the image's interface.
    async fn networks(&self, spec: &VmSpec) -> Result<Vec<Option<Network>>, DriverError> {
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

    fn conflict(&self, vm: &str) -> DriverError {
        DriverError::Conflict(format!("VM {vm} on {} has no mark of CAPW for this machine: it is left alone", self.client.server()))
    }

    async fn begin_clone(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal) -> Result<DriverStep, DriverError> {
        let (place, image, networks) = (self.place().await?, self.image(&spec.image).await?, self.networks(spec).await?);
        let place = place.with_datastore(&self.client, &self.settings).await?;
        let starts = seed.kind() == SeedKind::GuestInfo && self.settings.vm_group.is_none();
        let asked = Asked { place: &place, mode: self.settings.clone, networks: &networks, seed: found::seed_of_clone(seed), starts };
        let wanted = image.clone_spec(key, spec, &asked)?;
        let task = match self.client.clone_vm(image.vm(), &place.folder, &name_of(key), &wanted).await {
            Err(error) if error.is(&[NOT_FOUND]) => {
                // The image or a place was recreated: the next try finds it again.
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

    /// Explains why the name is taken: another process of ours was faster, or the VM is not ours.
    async fn duplicate(&self, key: &MachineKey) -> DriverError {
        match self.find_by_request(key, false).await {
            Ok(Some(found)) if !found.is_unknown() && !found.is_ours(key) => self.conflict(&found.name),
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
        self.known.lock().await.forget(key.vm);
        // A missing snapshot or disk of the image may be the cause.
        self.images.lock().await.clear();
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

    /// Gives a VM that is off its seed, unless the VM has this seed already or its seed was taken away.
    async fn reseed(&self, found: &Found, seed: &Seed) -> Result<(), DriverError> {
        let image = SeedImage::from(seed);
        let wanted = found::digest(&image);
        if found.seed.is_empty() || found.seed == wanted {
            return Ok(());
        }
        let spec = match image {
            SeedImage::GuestInfo(values) => element("spec").with_all(found::seed(&values)),
            SeedImage::Drive(bytes) => {
                let slot = Slot::read(&self.client, &found.vm).await?.ok_or_else(|| DriverError::Transient("the VM was there and is not".into()))?;
                self.client.upload(&self.settings.datacenter, &slot.file, bytes).await?;
                element("spec").with_all(slot.attach()).with(found::seeded(&wanted))
            }
        };
        let should = |vm: Option<&Found>| vm.is_some_and(|vm| vm.seed == wanted);
        self.is_done(&found.vm, self.client.reconfigure(&found.vm, &spec).await, &[], should).await.map(|_| ())
    }

    /// Takes the seed away. `false`: the removal still runs.
    async fn unseed(&self, found: &Found) -> Result<bool, DriverError> {
        if found.has_drive() && !self.remove_drive(found).await? {
            return Ok(false);
        }
        let spec = element("spec").with_all(found::no_seed());
        let is_seedless = |vm: Option<&Found>| vm.is_some_and(|vm| vm.seed.is_empty());
        self.is_done(&found.vm, self.client.reconfigure(&found.vm, &spec).await, &[], is_seedless).await
    }

    /// Ejects the CD and deletes its file. `false`: the removal still runs.
    async fn remove_drive(&self, found: &Found) -> Result<bool, DriverError> {
        let Some(slot) = Slot::read(&self.client, &found.vm).await? else { return Ok(true) };
        if let Some(eject) = slot.eject() {
            let spec = element("spec").with(eject);
            if !self.is_done(&found.vm, self.client.reconfigure(&found.vm, &spec).await, &[], |_| true).await? {
                return Ok(false);
            }
        }
        let datacenter = self.place().await?.datacenter;
        let deletion = self.client.delete_file(&slot.file, &datacenter).await;
        self.is_done(&found.vm, deletion, &[FILE_NOT_FOUND], |_| true).await
    }

    /// Puts a VM that is off into the group that the settings name. Others may change the group at the same time, so it is read again.
    async fn join_group(&self, vm: &Reference) -> Result<(), DriverError> {
        let Some(name) = &self.settings.vm_group else { return Ok(()) };
        let pool = self.place().await?.pool;
        let _alone = self.client.session().groups.lock().await;
        for _ in 0..GROUP_TRIES {
            let group = Group::find(&self.client, &pool, name).await?;
            if group.has(vm) {
                return Ok(());
            }
            self.is_done(vm, self.client.reconfigure_cluster(&group.cluster, &group.with(vm)).await, &[], |_| true).await?;
        }
        Err(DriverError::Transient(format!("VM group {name:?} is changed by others again and again")))
    }
}
