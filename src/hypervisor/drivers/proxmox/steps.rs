//! The steps in the life of a VM, each towards one goal.

use bytes::Bytes;

use super::client::{Location, Resource, TaskState};
use super::driver::ProxmoxDriver;
use super::fault::Refusal;
use super::found::{self, Found};
use super::hardware::{self, Asked};
use super::journal::{TASK, reserve, with_task, without_task};
use super::names::image_of;
use super::place;
use super::seek::Seek;
use super::tasks::POLL;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Journal, MachineKey, Power, Seed, StopMode, VmSpec};

/// The seconds that a node waits for a guest to shut down. The next pass repeats the request: a node that waited longer would keep others
/// from cutting the power.
const SHUT_DOWN: u64 = 5;

/// Returns the drive image of a seed.
pub fn drive(seed: &Seed) -> Result<Bytes, DriverError> {
    match SeedImage::from(seed) {
        SeedImage::Drive(bytes) => Ok(bytes.into()),
        SeedImage::GuestInfo(_) => {
            Err(DriverError::Invalid("Proxmox VE has no guestinfo: choose another spec.channel of the WindowsBootstrapConfig".into()))
        }
    }
}

impl ProxmoxDriver {
    /// Chooses a free id and a node. A VM that does not name its owner yet may belong to this machine, whose journal was lost.
    pub(super) async fn choose(&self, key: &MachineKey, spec: &VmSpec, taken: Option<u32>) -> Result<Location, DriverError> {
        let (image, place) = (self.image(&spec.image).await?, self.place().await?);
        let guests = self.client.guests().await?;
        let node = place.choose(&image, &self.settings, spec, &guests)?;
        let ids = self.settings.ids;
        let tried = taken.filter(|taken| (ids.first..=ids.last).contains(&i64::from(*taken)));
        let after = place::ids(ids, key).skip_while(|id| tried.is_some_and(|tried| *id != tried));
        for vmid in after.chain(place::ids(ids, key)).filter(|id| Some(*id) != taken) {
            match guests.iter().find(|guest| guest.vmid == u64::from(vmid)) {
                None => return Ok(Location { node, vmid }),
                Some(guest) if is_nameless(guest) => return Err(DriverError::Busy { after: POLL }),
                Some(_) => {}
            }
        }
        Err(DriverError::Capacity(format!(
            "no id from {} to {} is free: remove machines, or widen spec.proxmox.ids of the WindowsHypervisor",
            ids.first, ids.last
        )))
    }

    /// Clones the image. At most one of several concurrent attempts gets the id.
    pub(super) async fn begin(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal, to: &Location) -> Result<DriverStep, DriverError> {
        let failed = |error| Ok(DriverStep::Failed { journal: without_task(journal), error });
        match self.task(journal).await? {
            None => {}
            Some(TaskState::Running) => return Ok(DriverStep::Wait { after: POLL }),
            Some(TaskState::Failed(why)) => return failed(not_cloned(why)),
            Some(TaskState::Succeeded | TaskState::Forgotten) => {
                return failed(DriverError::Transient("the VM was cloned and is not there: it is made again".into()));
            }
        }
        let image = self.image(&spec.image).await?;
        let (template, form) = image.clone_form(key, spec, &self.settings, to)?;
        let copied_to = match image.is_linked(spec, &self.settings)? {
            true => None,
            false => self.settings.storage.clone().or_else(|| hardware::system_disk(&image.templates.first()?.config).map(|disk| disk.storage)),
        };
        // One copy at a time to each storage: concurrent copies would wait for the storage's lock, and fail.
        if let Some(storage) = &copied_to {
            let copy = self.copies.lock().await.get(storage).cloned();
            if let Some(copy) = copy
                && self.client.task(&copy).await? == TaskState::Running
            {
                return Ok(DriverStep::Wait { after: POLL });
            }
        }
        match self.client.clone(&template, form).await {
            Ok(task) => {
                self.copies.lock().await.extend(copied_to.map(|storage| (storage, task.clone())));
                Ok(DriverStep::Started { journal: with_task(journal, task) })
            }
            Err(error) if error.is(Refusal::is_taken) => self.taken(key, spec, journal, to).await,
            Err(error) if error.is(Refusal::is_gone) => {
                self.images.lock().await.clear();
                Err(DriverError::Transient(format!("image {:?} was there and is not", spec.image)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Handles an id that is taken: by an earlier attempt or another CAPW process, or by a VM that is not ours.
    async fn taken(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal, at: &Location) -> Result<DriverStep, DriverError> {
        match self.seek_ours(key, journal).await? {
            Seek::Ours(_) => Ok(DriverStep::Changed),
            Seek::Undecided(_) => Ok(DriverStep::Wait { after: POLL }),
            Seek::Foreign(_) | Seek::Nothing => {
                let next = self.choose(key, spec, Some(at.vmid)).await?;
                let error = DriverError::Transient(format!("id {} was given to another VM meanwhile: the VM gets {}", at.vmid, next.vmid));
                Ok(DriverStep::Failed { journal: reserve(journal, &next), error })
            }
        }
    }

    /// Returns the next step for a VM that does not name its owner, or is locked by its own clone.
    pub(super) async fn undecided(&self, journal: &Journal, at: &Location) -> Result<DriverStep, DriverError> {
        let state = self.task(journal).await?;
        match state {
            Some(TaskState::Running) | None => Ok(DriverStep::Wait { after: POLL }),
            // The task may have ended after the VM was observed, so the configuration is read again.
            Some(TaskState::Succeeded) => match self.client.config(at).await {
                Err(error) => Err(error.into()),
                Ok(config) if config.as_ref().is_some_and(|config| config.get("lock").is_some()) => Err(left_locked(at)),
                Ok(_) => Ok(DriverStep::Changed),
            },
            Some(TaskState::Failed(_) | TaskState::Forgotten) => match self.client.config(at).await? {
                // The node has cleaned up.
                None => Ok(DriverStep::Changed),
                Some(_) => Err(left_locked(at)),
            },
        }
    }

    /// Configures a clone as the machine's VM, attaches the configuration drive, and starts the VM.
    pub(super) async fn finish(
        &self,
        key: &MachineKey,
        spec: &VmSpec,
        image: Bytes,
        journal: &Journal,
        found: &Found,
    ) -> Result<DriverStep, DriverError> {
        if found.lock() == Some("clone") {
            return self.undecided(journal, &found.at).await;
        }
        let (at, wait) = (&found.at, Ok(DriverStep::Wait { after: POLL }));
        if self.power(at).await?.is_none_or(|power| power != Power::Off) {
            return Ok(DriverStep::Done);
        }
        let volume = self.volume(key);
        let is_configured = found.is_configured(key);
        // A VM whose drive was ejected is only started.
        if !is_configured || found.medium(&volume).is_some() {
            let task = self.client.upload(&at.node, &self.settings.iso_storage, &image_of(key.vm), image).await;
            if !self.is_done(task, |_| false).await? {
                return wait;
            }
        }
        if !is_configured {
            let grown = spec.system_disk_gib.zip(hardware::system_disk(&found.config)).filter(|(gib, disk)| disk.gib.is_none_or(|is| is < *gib));
            if let Some((gib, disk)) = &grown
                && !self.is_done(self.client.resize(at, &disk.key, *gib).await, |_| false).await?
            {
                return wait;
            }
            let (storage, network) = (self.settings.storage.as_deref(), self.settings.network.as_deref());
            // The resize has changed the configuration, so it is read again.
            let config = if grown.is_some() { self.client.config(at).await?.unwrap_or_default() } else { found.config.clone() };
            let form = Asked { key, spec, medium: &volume, storage, network }.form(&config)?;
            if !self.is_done(self.client.configure(at, form).await, |_| false).await? {
                return wait;
            }
        }
        self.is_done(self.client.start(at).await, Refusal::is_harmless).await?;
        Ok(DriverStep::Changed)
    }

    /// Ejects the configuration drive. The machine keeps running.
    pub(super) async fn eject(&self, key: &MachineKey, found: &Found) -> Result<DriverStep, DriverError> {
        let drive = found.medium(&self.volume(key)).map(str::to_owned);
        if let Some(drive) = &drive {
            let form = vec![(drive.clone(), "none,media=cdrom".to_owned())];
            if !self.is_done(self.client.configure(&found.at, form).await, |_| false).await? {
                return Ok(DriverStep::Wait { after: POLL });
            }
        }
        let removed = self.remove_image(key, Some(&found.at)).await?;
        Ok(if drive.is_some() || removed { DriverStep::Changed } else { DriverStep::Done })
    }

    /// Removes the configuration drive; returns whether one existed.
    pub(super) async fn remove_image(&self, key: &MachineKey, at: Option<&Location>) -> Result<bool, DriverError> {
        let Some(node) = self.node_of_image(key, at.map(|at| at.node.as_str())).await? else { return Ok(false) };
        let task = self.client.delete_image(&node, &self.settings.iso_storage, &image_of(key.vm)).await;
        self.is_done(task, |_| false).await?;
        Ok(true)
    }

    /// Stops one of our VMs, or removes it if it is off. The caller has just read its mark.
    pub(super) async fn remove(&self, how: StopMode, journal: &Journal, found: &Found) -> Result<DriverStep, DriverError> {
        let at = &found.at;
        if found.lock() == Some("clone") {
            return self.give_up(journal, at).await;
        }
        let Some(status) = self.client.status(at).await? else { return Ok(DriverStep::Changed) };
        let wait = Ok(DriverStep::Wait { after: POLL });
        if status.status != "stopped" {
            if how == StopMode::Graceful {
                // The task fails if the guest takes longer.
                return match self.client.shut_down(at, SHUT_DOWN).await {
                    Err(error) if !error.is(Refusal::is_harmless) => Err(error.into()),
                    _ => wait,
                };
            }
            return if self.is_done(self.client.stop(at).await, Refusal::is_harmless).await? { Ok(DriverStep::Changed) } else { wait };
        }
        if self.task(journal).await? == Some(TaskState::Running) {
            return wait;
        }
        let task = self.client.destroy(at).await;
        let name = task.as_ref().ok().filter(|task| !task.is_empty()).cloned();
        match (self.is_done(task, Refusal::is_gone).await?, name) {
            // The removal of large disks takes long.
            (false, Some(task)) => Ok(DriverStep::Started { journal: with_task(journal, task) }),
            (false, None) => wait,
            (true, _) => Ok(DriverStep::Changed),
        }
    }

    /// Stops a clone that is not needed any more: the node removes what it has created so far.
    pub(super) async fn give_up(&self, journal: &Journal, at: &Location) -> Result<DriverStep, DriverError> {
        if let (Some(TaskState::Running), Some(task)) = (self.task(journal).await?, journal.get(TASK)) {
            // A task that cannot be stopped ends on its own, and its VM is removed then.
            let _ = self.client.stop_task(task).await;
            return Ok(DriverStep::Wait { after: POLL });
        }
        self.undecided(journal, at).await
    }

    /// Returns the power of a VM; `None`: the VM no longer exists.
    pub(super) async fn power(&self, at: &Location) -> Result<Option<Power>, DriverError> {
        let status = self.client.status(at).await?;
        Ok(status.map(|status| found::power(found::state(&status), &status.lock, at).0))
    }
}

fn is_nameless(guest: &Resource) -> bool {
    guest.lock == "clone" && (guest.name.is_empty() || guest.name == format!("VM {}", guest.vmid))
}

fn not_cloned(why: Refusal) -> DriverError {
    match DriverError::from(why) {
        DriverError::Invalid(text) => DriverError::Invalid(format!("the VM cannot be cloned: {text}")),
        error => error,
    }
}

fn left_locked(at: &Location) -> DriverError {
    DriverError::Invalid(format!(
        "VM {0} on {1} is locked by a task that has ended, and does not say whose it is: look at it, then remove it with qm unlock {0} and qm destroy {0}; CAPW goes on then",
        at.vmid, at.node
    ))
}
