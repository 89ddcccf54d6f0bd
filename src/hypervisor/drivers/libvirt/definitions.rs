//! The definitions of VMs that this process knows.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::client::Domain;
use super::domain::Found;
use super::link::Session;
use super::refusal::{code, unless};
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;

/// The definitions that were created or read, by UUID: identity, processors and memory of a VM do not change.
#[derive(Default)]
pub struct Definitions(Mutex<HashMap<VmUuid, Found>>);

impl Definitions {
    /// Whether that VM was created or listed, and is not known to have been removed.
    pub fn knows(&self, vm: VmUuid) -> bool {
        self.0.lock().contains_key(&vm)
    }

    /// Lists the VMs that were created or listed, and are not known to have been removed.
    pub fn all(&self) -> Vec<VmUuid> {
        self.0.lock().keys().copied().collect()
    }

    /// Stores the definition of a VM, given in libvirt's XML.
    pub fn note(&self, vm: VmUuid, xml: &str) -> Option<Found> {
        let found = Found::read(xml)?;
        self.0.lock().insert(vm, found.clone());
        Some(found)
    }

    /// Drops the definitions of all other VMs than these.
    pub fn keep(&self, there: &HashSet<VmUuid>) {
        self.0.lock().retain(|vm, _| there.contains(vm));
    }

    /// Returns the definition of a domain; `None`: the domain was removed in the meantime, or is not ours.
    pub async fn get(&self, session: &Session, domain: &Domain) -> Result<Option<Found>, DriverError> {
        let vm = VmUuid(domain.uuid);
        let known = self.0.lock().get(&vm).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let xml = unless(session.client.domain_xml(domain).await, code::NO_DOMAIN)?;
        Ok(xml.and_then(|xml| self.note(vm, &xml)))
    }
}
