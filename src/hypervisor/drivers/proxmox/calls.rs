//! The calls of the driver contract, built on the modules of this folder.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::client::TaskState;
use super::driver::ProxmoxDriver;
use super::found;
use super::journal::{TASK, reserve, reserved};
use super::place::{self, Place};
use super::seek::Seek;
use super::steps::drive;
use super::tasks::POLL;
use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Wanted};
use crate::vm::{Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

const CAPS: Caps =
    Caps { driver: "proxmox", seeds: &[SeedKind::Drive], tick: Duration::from_secs(15), deadline: Duration::from_secs(60), reads: 8, changes: 4 };
#[async_trait]
impl Driver for ProxmoxDriver {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        let version = format!("Proxmox VE {}", self.client.version().await?.version);
        let lacks = place::lacks(&self.client, &self.settings).await?;
        // Without the permissions, nodes and storages that the token may not see would be reported as missing.
        let place = if lacks.is_empty() { Some(Place::find(&self.client, &self.settings).await?) } else { None };
        let capacity = place.as_ref().map(Place::capacity).unwrap_or_default();
        *self.place.lock().await = place.map(|place| (place, Instant::now()));
        let id = format!("Proxmox VE {}", self.identity().await?);
        Ok(Endpoint { id, version, cpus: capacity.cpus, memory_mib: capacity.memory_mib, lacks, unfit: None })
    }

    async fn check(&self, spec: &VmSpec, _seed: SeedKind) -> Result<(), DriverError> {
        self.image(&spec.image).await?.check(spec, &self.settings)?;
        self.check_networks(spec).await
    }

    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        self.list_all(wanted).await
    }

    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError> {
        let is_known = self.known.lock().await.contains_key(&key.vm);
        // While the VM is cloned, each observation takes only one request.
        if !is_known && self.task(journal).await? == Some(TaskState::Running) {
            return Ok(Observed::Present(found::creating()));
        }
        let found = match self.seek(key, journal).await? {
            Seek::Undecided(_) => return Ok(Observed::Present(found::creating())),
            Seek::Foreign(found) => {
                let what = format!("VM {} ({}) on {}", found.at.vmid, found.name(), found.at.node);
                return Ok(Observed::Foreign { what, is_marked: found.is_marked_for(key) });
            }
            Seek::Nothing => {
                let node = reserved(journal).map(|at| at.node);
                let image = self.node_of_image(key, node.as_deref()).await?;
                return Ok(image.map_or(Observed::Absent, |_| Observed::Present(found::leftover())));
            }
            Seek::Ours(found) => found,
        };
        let Some(status) = self.client.status(&found.at).await? else {
            return Err(DriverError::Transient(format!("VM {} was there and is not", found.at.vmid)));
        };
        let lock = found.lock().unwrap_or_default();
        let seeded = match found.medium(&self.volume(key)) {
            Some(_) => true,
            // The configuration drive may be ejected and not removed yet.
            None if found.is_configured(key) => self.node_of_image(key, Some(&found.at.node)).await?.is_some(),
            None => false,
        };
        let report = self.words.lock().await.of(key.vm);
        Ok(Observed::Present(found::present(found::power(found::state(&status), lock, &found.at), seeded, report)))
    }

    async fn plan(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        match reserved(journal) {
            Some(_) => Ok(journal.clone()),
            None => Ok(reserve(journal, &self.choose(key, spec, None).await?)),
        }
    }

    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError> {
        let image = drive(seed)?;
        // The journal reserves the id, and no second VM can get it.
        if let (Observed::Absent, Some(at)) = (observed, reserved(journal)) {
            return self.begin(key, spec, journal, &at).await;
        }
        match self.seek_ours(key, journal).await? {
            Seek::Ours(found) => self.finish(key, spec, image, journal, &found).await,
            Seek::Undecided(at) => self.undecided(journal, &at).await,
            Seek::Foreign(found) => Err(self.conflict(&found)),
            Seek::Nothing => match reserved(journal) {
                Some(at) => self.begin(key, spec, journal, &at).await,
                None if self.remove_image(key, None).await? => Ok(DriverStep::Changed),
                None => Ok(DriverStep::Started { journal: self.plan(key, spec, journal).await? }),
            },
        }
    }

    async fn detach(&self, key: &MachineKey, journal: &Journal) -> Result<DriverStep, DriverError> {
        match self.seek_ours(key, journal).await? {
            Seek::Ours(found) => self.eject(key, &found).await,
            _ => Ok(DriverStep::Done),
        }
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let wait = Ok(DriverStep::Wait { after: POLL });
        match self.seek_ours(key, journal).await? {
            Seek::Ours(found) => self.remove(how, journal, &found).await,
            Seek::Undecided(at) => self.give_up(journal, &at).await,
            Seek::Foreign(found) => Err(self.conflict(&found)),
            Seek::Nothing => {
                if let (Some(TaskState::Running), Some(task)) = (self.task(journal).await?, journal.get(TASK)) {
                    let _ = self.client.stop_task(task).await;
                    return wait;
                }
                let was_there = self.remove_image(key, reserved(journal).as_ref()).await?;
                Ok(if was_there { DriverStep::Changed } else { DriverStep::Done })
            }
        }
    }
}
