//! The calls of every driver, for libvirt.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::client::Volume;
use super::copies::POLL;
use super::domain;
use super::driver::LibvirtDriver;
use super::link::Session;
use super::listing::Known;
use super::looks::Seen;
use super::making::Defined;
use super::refusal::{Error, code, unless};
use super::volumes::Volumes;
use crate::api::hypervisor::GuestWords;
use crate::hypervisor::shutdowns::ASK_AGAIN;
use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, ImageFirmware, Listing, Wanted};
use crate::vm::{Journal, MachineKey, Observed, Power, Present, Seed, SeedKind, StopMode, Thing, VmSpec};

const CAPS: Caps =
    Caps { driver: "libvirt", seeds: &[SeedKind::Drive], tick: Duration::from_secs(10), deadline: Duration::from_secs(60), reads: 8, changes: 4 };
/// The time between two checks of a guest that shuts down.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// How long a started VM counts as running without a check, unless an event of the daemon ends it: until a listing shows the VM.
const STARTED: Duration = CAPS.tick;

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

    async fn detach(&self, key: &MachineKey, _journal: &Journal) -> Result<DriverStep, DriverError> {
        let session = self.link.session().await?;
        let Some(found) = self.find_ours(&session, key).await?.filter(|found| found.has_medium) else { return Ok(DriverStep::Done) };
        // The volume is deleted first: the definition names it as long as it may exist.
        let volume = Volume { name: Volumes::of(key).drive(), key: String::new() };
        unless(session.client.delete_volume(&session.pool, &volume).await, code::NO_STORAGE_VOL)?;
        session.client.update_device(&domain::of(key), &domain::empty_drive(), found.is_active).await?;
        Ok(DriverStep::Changed)
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, _journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        if how == StopMode::Graceful && self.shutdowns.has(key.vm) && matches!(observed, Observed::Present(Present { power: Power::On, .. })) {
            return Ok(DriverStep::Wait { after: SHUTDOWN });
        }
        let session = self.link.session().await?;
        let it = domain::of(key);
        self.copies.forget(key.vm);
        let found = self.find_ours(&session, key).await?;
        if found.is_some() {
            // Marks the event of the stop as expected.
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

impl LibvirtDriver {
    async fn start(&self, session: &Session, key: &MachineKey) -> Result<(), DriverError> {
        let it = domain::of(key);
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
}
