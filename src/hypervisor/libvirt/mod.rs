//! The `libvirt` driver: QEMU on the user's own host.
//!
//! A VM is a domain and its volumes in one pool: the system disk over or from an image, the configuration drive, and a file for the output
//! of the guest's serial port. CAPW chooses name and UUID, and the daemon refuses a second VM with either; the mark is in the domain's
//! metadata. The domain is removed last, so that it names the owner of leftovers.

pub mod address;
mod addresses;
mod agent;
mod capabilities;
mod checks;
mod client;
mod copies;
mod disks;
mod domain;
mod events;
mod facts;
mod firmware;
mod hardware;
mod link;
mod listing;
mod logs;
mod look;
mod making;
mod memory;
mod networks;
mod partitions;
mod qcow2;
mod refusal;
mod rights;
mod rpc;
mod shared;
#[cfg(test)]
mod tests;
mod told;
mod volumes;
mod xdr;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use parking_lot::MutexGuard;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::address::Address;
use self::addresses::Addresses;
use self::capabilities::Capabilities;
use self::client::{Domain, Volume};
use self::copies::{Copies, POLL};
use self::link::{Link, Session};
use self::listing::{Definitions, Known, Seen as Listed};
use self::logs::TurnedOver;
use self::look::{Looks, Seen};
use self::memory::Memory;
use self::refusal::{BEING_MADE, Error, code, unless};
use self::told::Told;
use self::volumes::{Image, Volumes};
use super::fresh::Fresh;
use super::login::Login;
use super::shutdowns::{ASK_AGAIN, Shutdowns};
use super::wire::Wire;
use super::{Caps, Driver, DriverError, DriverStep, Endpoint, ImageFirmware, Listing, Wanted};
use crate::api::hypervisor::{GuestWords, Libvirt};
use crate::api::name::VmUuid;
use crate::vm::{GuestReport, Journal, MachineKey, Observed, Power, Present, Seed, SeedKind, StopMode, Thing, VmSpec};

const CAPS: Caps =
    Caps { driver: "libvirt", seeds: &[SeedKind::Drive], tick: Duration::from_secs(10), deadline: Duration::from_secs(60), reads: 8, changes: 4 };
/// The time between two checks of a guest that shuts down.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// How long a started VM counts as running without a check, unless an event of the daemon ends it: until a listing shows the VM.
const STARTED: Duration = CAPS.tick;

/// A connection to one libvirt host.
pub struct LibvirtDriver {
    settings: Libvirt,
    is_session: bool,
    link: Link,
    images: Mutex<Fresh<Image>>,
    networks: Mutex<Option<(Vec<String>, Instant)>>,
    /// The names of the host's interfaces; `None` if the daemon does not list them.
    interfaces: Mutex<Fresh<Option<Vec<String>>>>,
    capabilities: Mutex<Fresh<Capabilities>>,
    /// The free bytes of the pool.
    space: Mutex<Fresh<u64>>,
    memory: Mutex<Memory>,
    copies: Copies,
    definitions: Definitions,
    turned_over: TurnedOver,
    addresses: Addresses,
    listed: Mutex<Listed>,
    looks: Looks,
    told: Arc<Told>,
    /// The reports of guests in the last listing.
    reports: parking_lot::Mutex<HashMap<VmUuid, GuestReport>>,
    shutdowns: Shutdowns,
}

impl LibvirtDriver {
    /// Creates the driver. It sends nothing to the host before the first call.
    pub fn new(settings: Libvirt, login: &Login, wire: Wire) -> Result<Self, DriverError> {
        let told = Arc::<Told>::default();
        let link = Link::new(&settings.address, &settings.pool, login, wire, told.clone())?;
        let is_session = Address::parse(&settings.address)?.is_session();
        Ok(Self {
            settings,
            is_session,
            link,
            images: Mutex::default(),
            networks: Mutex::default(),
            interfaces: Mutex::default(),
            capabilities: Mutex::default(),
            space: Mutex::default(),
            memory: Mutex::default(),
            copies: Copies::default(),
            definitions: Definitions::default(),
            turned_over: TurnedOver::default(),
            addresses: Addresses::default(),
            listed: Mutex::default(),
            looks: Looks::default(),
            told,
            reports: parking_lot::Mutex::default(),
            shutdowns: Shutdowns::default(),
        })
    }

    fn reports(&self) -> MutexGuard<'_, HashMap<VmUuid, GuestReport>> {
        self.reports.lock()
    }

    /// Returns the network of interfaces that name none.
    fn default_network(&self) -> Option<&str> {
        self.settings.network.as_deref().or((!self.is_session).then_some("default"))
    }

    fn conflict(&self, domain: &str) -> DriverError {
        DriverError::Conflict(format!("domain {domain} on {} has no mark of CAPW for this machine: it is left alone", self.settings.address))
    }

    async fn start(&self, session: &Session, key: &MachineKey) -> Result<(), DriverError> {
        let it = domain(key);
        match session.client.start(&it).await {
            // Another process started the VM first, or libvirt refused for another reason with the same code: the state of the domain decides.
            Err(Error::Refused { code: code::OPERATION_INVALID, text }) => {
                if session.client.is_active(&it).await? {
                    return Ok(());
                }
                // A network may have been stopped since it was checked.
                *self.networks.lock().await = None;
                Err(Error::Refused { code: code::OPERATION_INVALID, text }.into())
            }
            // Another process that starts the same VM is replacing its drive.
            Err(Error::Refused { text, .. }) if text.contains(&format!("/{}", Volumes::of(key).drive())) => {
                Err(DriverError::Transient(format!("the VM does not start with its configuration drive: libvirt says: {text}")))
            }
            // The text comes from QEMU.
            Err(Error::Refused { code: code::INTERNAL_ERROR, text }) => {
                match DriverError::from(Error::Refused { code: code::INTERNAL_ERROR, text }) {
                    DriverError::Transient(text) => Err(DriverError::Invalid(format!("the VM does not start: {text}"))),
                    error => Err(error),
                }
            }
            started => Ok(started?),
        }
    }

    /// Deletes volumes. False: the daemon is still creating one of them, and will finish it first.
    async fn delete_volumes(&self, session: &Session, volumes: &[Volume]) -> Result<bool, DriverError> {
        for volume in volumes {
            match session.client.delete_volume(&session.pool, volume).await {
                Err(Error::Refused { code: code::OPERATION_INVALID, text }) if text.contains(BEING_MADE) => return Ok(false),
                deleted => unless(deleted, code::NO_STORAGE_VOL)?,
            };
        }
        Ok(true)
    }
}

/// Whether a machine is known to have a domain while its volumes are created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defined {
    Yes,
    /// No domain existed at the last check.
    No,
}

fn domain(key: &MachineKey) -> Domain {
    Domain { name: Volumes::of(key).vm().to_owned(), uuid: key.vm.0 }
}

#[async_trait]
impl Driver for LibvirtDriver {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        let mut session = self.link.session().await?;
        let mut is_active = unless(session.client.pool_is_active(&session.pool).await, code::NO_STORAGE_POOL)?;
        if is_active.is_none() {
            // The pool was deleted or recreated: a new connection finds it by its name.
            self.link.end().await;
            session = self.link.session().await?;
            is_active = Some(session.client.pool_is_active(&session.pool).await?);
        }
        if is_active != Some(true) {
            let text =
                format!("storage pool {} on {} is not active: virsh pool-start {}", session.pool.name, self.settings.address, session.pool.name);
            return Err(DriverError::Missing { thing: Thing::Placement, text });
        }
        let (version, node) = (session.client.version().await?, session.client.node().await?);
        Ok(Endpoint {
            id: format!("libvirt pool {}", session.pool.uuid),
            version: format!("libvirt {}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000),
            cpus: Some(i64::from(node.cpus)),
            memory_mib: Some(node.memory_kib >> 10),
            lacks: Vec::new(),
            unfit: self.unfit(&session).await?,
        })
    }

    async fn check(&self, spec: &VmSpec, _seed: SeedKind) -> Result<(), DriverError> {
        let session = self.link.session().await?;
        self.check_machine(&session, spec).await
    }

    async fn image_firmware(&self, spec: &VmSpec) -> Result<ImageFirmware, DriverError> {
        let session = self.link.session().await?;
        self.firmware_of_image(&session, spec).await
    }

    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        let session = self.link.session().await?;
        let known = Known { definitions: &self.definitions, turned_over: &self.turned_over, addresses: &self.addresses };
        self.told.restarted().into_iter().for_each(|vm| self.addresses.restarted(vm));
        let listing = self.listed.lock().await.list(&session, &known, wanted, self.settings.words).await?;
        let reports = listing.rows.iter().filter_map(|row| Some((row.key.vm, row.present.report.clone()?)));
        *self.reports() = reports.collect();
        Ok(listing)
    }

    async fn observe(&self, key: &MachineKey, _journal: &Journal) -> Result<Observed, DriverError> {
        let session = self.link.session().await?;
        if let Some(present) = self.told.of(key) {
            return Ok(Observed::Present(Present { report: self.reports().get(&key.vm).cloned(), addresses: self.addresses.of(key.vm), ..present }));
        }
        Ok(match self.look(&session, key).await? {
            Seen::Domain(found) if found.is_ours(key) => Observed::Present(self.present(key, found.is_active, found.has_medium)),
            Seen::Domain(found) => {
                let is_marked = found.owner.as_ref().is_some_and(|(_, mark)| key.is_named_by(mark));
                Observed::Foreign { what: format!("domain {} on {}", found.name, self.settings.address), is_marked }
            }
            Seen::Volumes(volumes) if volumes.is_empty() => Observed::Absent,
            Seen::Volumes(volumes) => {
                let drive = Volumes::of(key).drive();
                let has_drive = volumes.iter().any(|volume| volume.name == drive);
                Observed::Present(Present { vm: false, ..self.present(key, false, has_drive) })
            }
        })
    }

    async fn confirm_absence(&self, key: &MachineKey) -> Result<(), DriverError> {
        let session = self.link.session().await?;
        self.confirm_nothing_is_hidden(&session, key).await
    }

    fn hints(&self) -> Option<BoxStream<'static, ()>> {
        Some(self.told.hints())
    }

    async fn advance(
        &self,
        key: &MachineKey,
        spec: &VmSpec,
        seed: &Seed,
        _journal: &Journal,
        _observed: &Observed,
    ) -> Result<DriverStep, DriverError> {
        let session = self.link.session().await?;
        let has_medium = match self.find_ours(&session, key).await? {
            Some(found) if found.is_active => return Ok(DriverStep::Done),
            Some(found) => {
                self.check_networks(&session, spec).await?;
                // The VM was created and not started, or was switched off before its seed was detached.
                if found.has_medium {
                    self.make_drive(&session, key, seed, Defined::Yes).await?;
                }
                found.has_medium
            }
            None if self.make(&session, key, spec, seed).await? => true,
            None => return Ok(DriverStep::Wait { after: POLL }),
        };
        self.told.await_answer(key.vm);
        self.start(&session, key).await?;
        self.told.runs(key, self.present(key, true, has_medium), STARTED);
        Ok(DriverStep::Changed)
    }

    async fn detach(&self, key: &MachineKey, _journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let session = self.link.session().await?;
        let Some(found) = self.find_ours(&session, key).await?.filter(|found| found.has_medium) else { return Ok(DriverStep::Done) };
        // The volume is deleted first: the definition names it as long as it may exist.
        let volume = Volume { name: Volumes::of(key).drive(), key: String::new() };
        unless(session.client.delete_volume(&session.pool, &volume).await, code::NO_STORAGE_VOL)?;
        session.client.update_device(&domain(key), &domain::empty_drive(), found.is_active).await?;
        Ok(DriverStep::Changed)
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, _journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        if how == StopMode::Graceful && self.shutdowns.has(key.vm) && matches!(observed, Observed::Present(Present { power: Power::On, .. })) {
            return Ok(DriverStep::Wait { after: SHUTDOWN });
        }
        let session = self.link.session().await?;
        let it = domain(key);
        self.copies.forget(key.vm);
        let found = self.find_ours(&session, key).await?;
        if found.is_some() {
            // Makes the event of the stop an expected one.
            self.told.await_answer(key.vm);
        }
        if let Some(found) = found.as_ref().filter(|found| found.is_active) {
            if how == StopMode::Graceful {
                // A guest that is already off needs no shutdown.
                if unless(session.client.shutdown(&it).await, code::OPERATION_INVALID)?.is_some() {
                    self.told.shuts_down(key, self.present(key, true, found.has_medium), ASK_AGAIN);
                }
                self.shutdowns.note(key.vm);
                return Ok(DriverStep::Wait { after: SHUTDOWN });
            }
            unless(unless(session.client.destroy(&it).await, code::OPERATION_INVALID).map(drop), code::NO_DOMAIN)?;
        }
        // The definition is removed last: it must exist as long as files of the log may exist.
        if found.is_some() && self.settings.words == GuestWords::Serial && !self.turned_over.find(&session, key.vm, &self.definitions).await? {
            return Ok(DriverStep::Wait { after: POLL });
        }
        let volumes = self.volumes_of(&session, key).await?;
        match &found {
            Some(found) => self.refuse_hidden_volumes(&session, key, found, &volumes).await?,
            None if volumes.is_empty() => return Ok(DriverStep::Done),
            // Without our domain the volumes are leftovers, unless a foreign domain of this name uses them.
            None => {
                self.refuse_other(&session, key).await?;
            }
        }
        if !self.delete_volumes(&session, &volumes).await? {
            return Ok(DriverStep::Wait { after: POLL });
        }
        if found.is_some() {
            unless(session.client.undefine(&it).await, code::NO_DOMAIN)?;
            self.looks.removed(key.vm);
            self.turned_over.forget(key.vm);
        }
        Ok(DriverStep::Changed)
    }
}
