//! Observes one machine. One request reads a known domain; without one, two requests list the volumes and the domains, shared by all machines
//! that are observed at the same time. An observation is valid only for the change that follows at once.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::client::Volume;
use super::domain::{self, Found};
use super::driver::LibvirtDriver;
use super::link::Session;
use super::looks::{Known, Seen};
use super::refusal::{code, unless};
use super::volumes::Volumes;
use crate::api::hypervisor::GuestWords;
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::vm::{MachineKey, Power, Present, Seeded};

impl LibvirtDriver {
    /// Reads what exists of a machine; if the daemon has just confirmed the removal of the domain, that answer counts.
    pub(super) async fn look(&self, session: &Session, key: &MachineKey) -> Result<Seen, DriverError> {
        let is_removed = matches!(self.looks.take(key.vm), Some(Known::Removed));
        let is_known = self.definitions.knows(key.vm);
        if !is_removed
            && is_known
            && let Some(found) = self.see(session, key).await?
        {
            return Ok(Seen::Domain(found));
        }
        let volumes = self.volumes_of(session, key).await?;
        let known = if is_removed {
            if volumes.is_empty() { Known::Gone } else { Known::Missing }
        } else if is_known {
            Known::Missing
        } else if volumes.is_empty() && !self.is_listed(session, key).await? {
            Known::Unlisted
        } else if let Some(found) = self.see(session, key).await? {
            return Ok(Seen::Domain(found));
        } else {
            Known::Missing
        };
        self.looks.note(key.vm, known);
        Ok(Seen::Volumes(volumes))
    }

    async fn see(&self, session: &Session, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        let found = find(session, key).await?;
        if let Some(found) = &found {
            self.looks.note(key.vm, Known::Seen(found.clone()));
        }
        Ok(found)
    }

    async fn is_listed(&self, session: &Session, key: &MachineKey) -> Result<bool, DriverError> {
        let look = async { Ok(Arc::new(session.client.domains().await?.iter().map(|it| VmUuid(it.domain.uuid)).collect())) };
        let listed: Arc<HashSet<VmUuid>> = self.looks.listed.get(look).await?;
        Ok(listed.contains(&key.vm))
    }

    /// Refuses to treat a machine as deleted if an unlisted domain or volume of it exists. The names of data disks are not known without a
    /// domain; these disks are created after the system disk, and removed before it.
    pub(super) async fn confirm_nothing_is_hidden(&self, session: &Session, key: &MachineKey) -> Result<(), DriverError> {
        match self.looks.take(key.vm) {
            Some(Known::Gone) => return Ok(()),
            Some(Known::Missing) => {}
            _ => {
                if let Some(found) = find(session, key).await? {
                    let text = format!("domain {} was not among the domains of {} a moment ago, and is there", found.name, self.settings.address);
                    return Err(DriverError::Transient(text));
                }
            }
        }
        let names = Volumes::of(key);
        for name in [names.system(), names.drive(), names.log()] {
            refuse_hidden(session, &name).await?;
        }
        Ok(())
    }

    /// Refuses to remove a domain that has unlisted volumes: without the domain nothing would name their owner.
    pub(super) async fn refuse_hidden_volumes(
        &self,
        session: &Session,
        key: &MachineKey,
        found: &Found,
        listed: &[Volume],
    ) -> Result<(), DriverError> {
        let names = Volumes::of(key);
        let of_disks = found.volumes(&session.storage).filter(|name| names.contain(name)).map(str::to_owned);
        let log = (self.settings.words == GuestWords::Serial).then(|| names.log());
        let all: BTreeSet<String> = of_disks.chain([names.system()]).chain(log).collect();
        for name in all.iter().filter(|name| listed.iter().all(|volume| volume.name != **name)) {
            refuse_hidden(session, name).await?;
        }
        Ok(())
    }

    /// Finds the domain of a machine before a change, and refuses a domain that is not ours. The change ends the known state from events.
    pub(super) async fn find_ours(&self, session: &Session, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        self.told.forget(key.vm);
        let found = match self.looks.take(key.vm) {
            Some(Known::Seen(found)) => Some(found),
            Some(Known::Missing | Known::Unlisted | Known::Removed | Known::Gone) => None,
            None => find(session, key).await?,
        };
        match found {
            Some(found) if !found.is_ours(key) => Err(self.conflict(&found.name)),
            found => Ok(found),
        }
    }

    /// Lists the volumes of a machine, whether it has a domain or not.
    pub(super) async fn volumes_of(&self, session: &Session, key: &MachineKey) -> Result<Vec<Volume>, DriverError> {
        let look = async { Ok(Arc::new(session.client.volumes(&session.pool).await?)) };
        let (all, names) = (self.looks.volumes.get(look).await?, Volumes::of(key));
        Ok(all.iter().filter(|volume| names.contain(&volume.name)).cloned().collect())
    }

    /// Describes a VM with a domain. Its medium is removed after the volume.
    pub(super) fn present(&self, key: &MachineKey, is_active: bool, has_medium: bool) -> Present {
        Present {
            power: if is_active { Power::On } else { Power::Off },
            seeded: Seeded::from_attached(has_medium),
            vm: true,
            addresses: if is_active { self.addresses.of(key.vm) } else { Vec::new() },
            report: self.reports().get(&key.vm).cloned(),
            trouble: None,
            warning: None,
        }
    }
}

/// Fails if an unlisted volume of that name exists. A list silently omits the volumes that libvirt's access control hides; a request by
/// name for such a volume is refused.
pub async fn refuse_hidden(session: &Session, name: &str) -> Result<(), DriverError> {
    if session.client.has_volume(&session.pool, name).await? {
        return Err(DriverError::Transient(format!(
            "volume {name} of pool {} was not among its volumes a moment ago, and is there",
            session.pool.name
        )));
    }
    Ok(())
}

/// Reads the domain with the UUID of that machine, ours or not.
async fn find(session: &Session, key: &MachineKey) -> Result<Option<Found>, DriverError> {
    let domain = domain::of(key);
    let Some(xml) = unless(session.client.domain_xml(&domain).await, code::NO_DOMAIN)? else { return Ok(None) };
    Found::read(&xml).map(Some).ok_or_else(|| DriverError::Transient(format!("the definition of domain {} cannot be read", domain.name)))
}
