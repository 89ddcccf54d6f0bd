//! The calls of the driver contract, built on the modules of this folder.

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::time::Instant;

use super::caps::CAPS;
use super::driver::{CLONE, POLL, VsphereDriver};
use super::fault::{NOT_FOUND, POWER_STATE};
use super::found::{self, Found, Memory};
use super::group::Group;
use super::look::Cloned;
use super::place::{Place, folder_path};
use super::task::TaskState;
use super::updates::updates;
use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Row, Wanted};
use crate::vm::{Journal, MachineKey, Observed, Power, Seed, SeedKind, StopMode, VmSpec};

/// The harmless faults of a guest shutdown: the VM is off, has no tools, or is about to shut down.
const NO_SHUTDOWN: [&str; 5] = [POWER_STATE, "ToolsUnavailable", "TaskInProgress", "InvalidState", NOT_FOUND];

#[async_trait]
impl Driver for VsphereDriver {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        let open = self.client.open().await?;
        let place = Place::find(&self.client, &self.settings).await?;
        *self.place.lock().await = Some((place.clone(), Instant::now()));
        let (capacity, mut lacks) = (place.capacity(&self.client).await?, place.lacks(&self.client).await?);
        if let Some(name) = &self.settings.vm_group {
            lacks.extend(Group::find(&self.client, &place.pool, name).await?.lacks(&self.client).await?);
        }
        Ok(Endpoint {
            id: format!("vCenter {}", open.instance),
            version: open.product.clone(),
            cpus: capacity.cpus,
            memory_mib: capacity.memory_mib,
            lacks,
            unfit: None,
        })
    }

    async fn check(&self, spec: &VmSpec, seed: SeedKind) -> Result<(), DriverError> {
        self.image(&spec.image).await?.is_linked(spec, self.settings.clone)?;
        self.networks(spec).await?;
        if seed == SeedKind::Drive {
            self.place().await?.admits_drives(&self.client).await?;
        }
        Ok(())
    }

    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        let found = self.all(!wanted.awaiting_reports.is_empty()).await?;
        let mut known = self.known.lock().await;
        known.tidy();
        let mut rows: Vec<Row> = Vec::new();
        for found in found {
            let Some(key) = found.key() else { continue };
            known.note(key.vm, Memory::Is(found.vm.clone()));
            rows.push(Row { key, present: self.present(&found).await, cpus: found.cpus(), memory_mib: found.memory_mib });
        }
        rows.sort_by_key(|row| row.key.vm);
        Ok(Listing { rows, leftovers: Vec::new() })
    }

    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError> {
        let found = match self.cloned(key, journal).await? {
            Cloned::Running => return Ok(Observed::Present(Found::creating())),
            Cloned::Is(found) => Some(*found),
            Cloned::Unknown => self.find(key).await?,
        };
        Ok(match found {
            // A clone that was just begun may not be visible anywhere yet, and only the journal names the task.
            None if journal.get(CLONE).is_none() && self.has_just_begun(key).await => Observed::Present(Found::creating()),
            None => Observed::Absent,
            Some(found) if found.is_unknown() || found.is_ours(key) => Observed::Present(self.present(&found).await),
            // A clone gets its mark a moment after its name.
            Some(found) if found.is_unmarked() && self.has_just_begun(key).await => Observed::Present(Found::creating()),
            Some(found) => Observed::Foreign { what: format!("VM {} on {}", found.name, self.client.server()), is_marked: found.is_marked_for(key) },
        })
    }

    fn hints(&self) -> Option<BoxStream<'static, ()>> {
        Some(updates(&self.client, folder_path(&self.settings)))
    }

    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        if let Observed::Foreign { .. } = observed {
            return Err(self.conflict(&found::name_of(key)));
        }
        if *observed == Observed::Absent {
            return match journal.get(CLONE) {
                // The vCenter would refuse a second clone of that name.
                None => self.begin_clone(key, spec, seed, journal).await,
                Some(task) => match self.task(task, None).await? {
                    TaskState::Running => Ok(self.next_poll(key).await),
                    TaskState::Failed(fault) => Ok(self.clone_failed(key, journal, Some(fault)).await),
                    TaskState::Succeeded(_) | TaskState::Forgotten => Ok(self.clone_failed(key, journal, None).await),
                },
            };
        }
        if let Observed::Present(present) = observed
            && let Some(error) = found::unreadable(present)
        {
            return Err(error);
        }
        let is_made = matches!(observed, Observed::Present(present) if present.power != Power::Creating);
        let found = if is_made { self.find_ours(key).await?.filter(|found| !found.is_unknown()) } else { None };
        let Some(found) = found else { return Ok(self.next_poll(key).await) };
        if !found.is_off() {
            return Ok(DriverStep::Done);
        }
        // The clone did not start the VM, or the VM was switched off before its guest could read the seed.
        self.join_group(&found.vm).await?;
        self.reseed(&found, seed).await?;
        let is_on = |vm: Option<&Found>| vm.is_some_and(|vm| !vm.is_off());
        let done = self.is_done(&found.vm, self.client.power_on(&found.vm).await, &[POWER_STATE], is_on).await?;
        Ok(if done { DriverStep::Changed } else { DriverStep::Wait { after: POLL } })
    }

    async fn detach(&self, key: &MachineKey, _journal: &Journal) -> Result<DriverStep, DriverError> {
        let Some(found) = self.find_ours(key).await? else { return Ok(DriverStep::Done) };
        if found.seed.is_empty() {
            return Ok(DriverStep::Done);
        }
        Ok(if self.unseed(&found).await? { DriverStep::Changed } else { DriverStep::Wait { after: POLL } })
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let wait = Ok(DriverStep::Wait { after: POLL });
        let Some(found) = self.find_ours(key).await? else {
            let is_gone = matches!(self.known.lock().await.get(key.vm), Some(Memory::Gone(_)));
            return match journal.get(CLONE).filter(|_| !is_gone) {
                Some(task) => match self.task(task, None).await? {
                    TaskState::Running => {
                        // A task that cannot be cancelled ends on its own, and its VM is removed then.
                        let _ = self.client.cancel(task).await;
                        wait
                    }
                    // The VM exists, or did: poll again.
                    TaskState::Succeeded(_) if self.find(key).await?.is_some() => Ok(DriverStep::Changed),
                    TaskState::Succeeded(_) | TaskState::Failed(_) | TaskState::Forgotten => Ok(DriverStep::Done),
                },
                None => Ok(DriverStep::Done),
            };
        };
        if found.is_unknown() {
            return found.unreadable().map_or(wait, Err);
        }
        // A VM that is still being cloned is off, and must not be destroyed under its task.
        if let Some(task) = journal.get(CLONE).filter(|_| found.is_off())
            && self.is_running(task).await?
        {
            let _ = self.client.cancel(task).await;
            return wait;
        }
        if !found.is_off() && how == StopMode::Graceful {
            if self.shutdowns.has(key.vm) {
                return wait;
            }
            // A shutdown request loses no data of the guest.
            return match self.client.shut_down(&found.vm).await {
                Ok(()) => {
                    self.shutdowns.note(key.vm);
                    wait
                }
                Err(error) if error.is(&NO_SHUTDOWN) => wait,
                Err(error) => Err(error.into()),
            };
        }
        let Some(found) = self.confirmed(key, found).await? else { return Ok(DriverStep::Changed) };
        if !found.is_off() {
            let is_off = |vm: Option<&Found>| vm.is_none_or(Found::is_off);
            if !self.is_done(&found.vm, self.client.power_off(&found.vm).await, &[POWER_STATE], is_off).await? {
                return wait;
            }
            // A newer update from the vCenter proves the owner; otherwise the mark is read again before the VM is destroyed.
            if !self.client.mirror().vm(&found.vm).is_some_and(|told| told.is_off() && told.is_ours(key)) {
                return Ok(DriverStep::Changed);
            }
        }
        if found.has_drive() && !self.remove_drive(&found).await? {
            return wait;
        }
        if !self.is_done(&found.vm, self.client.destroy(&found.vm).await, &[], |vm| vm.is_none()).await? {
            return wait;
        }
        self.client.mirror().forget(&found.vm);
        self.known.lock().await.note(key.vm, Memory::Gone(Instant::now()));
        Ok(DriverStep::Changed)
    }
}
