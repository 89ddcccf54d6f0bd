//! Finds a machine's VM in the cluster, and determines its owner.

use super::client::Location;
use super::driver::ProxmoxDriver;
use super::fault::Refusal;
use super::found::Found;
use super::journal::reserved;
use super::names::{name_of, tag};
use crate::hypervisor::DriverError;
use crate::vm::{Journal, MachineKey};

/// The result of a search for a machine's VM.
pub enum Seek {
    Nothing,
    Ours(Box<Found>),
    /// A VM in the place of the machine's VM that is not ours.
    Foreign(Box<Found>),
    /// A VM with the reserved id that does not name its owner: it is being created or removed.
    Undecided(Location),
}

impl ProxmoxDriver {
    /// Finds the VM with the id, name or UUID of a machine's VM. `Nothing` proves that there is none: its own configuration does not exist,
    /// and no VM of this cluster has its tag or name.
    pub(super) async fn seek(&self, key: &MachineKey, journal: &Journal) -> Result<Seek, DriverError> {
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
        let (tag, name) = (tag(key.vm), name_of(key));
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

    pub(super) async fn seek_ours(&self, key: &MachineKey, journal: &Journal) -> Result<Seek, DriverError> {
        match self.seek(key, journal).await? {
            Seek::Foreign(found) => Err(self.conflict(&found)),
            other => Ok(other),
        }
    }

    pub(super) fn conflict(&self, found: &Found) -> DriverError {
        DriverError::Conflict(format!(
            "VM {} ({}) on {} has no mark of CAPW for this machine: it is left alone",
            found.at.vmid,
            found.name(),
            found.at.node
        ))
    }
}
