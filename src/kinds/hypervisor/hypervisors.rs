//! The hypervisors of a namespace, as machines and pools use them.

use std::sync::Arc;

use super::inventory::Inventories;
use super::login::Logins;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::name::ObjectKey;
use crate::engine::caches::Caches;
use crate::hypervisor::Driver;
use crate::hypervisor::drivers::Drivers;
use crate::kinds::machine::decide::step::Reach;

/// The hypervisors as machines use them: their drivers and their last listings.
#[derive(Clone)]
pub struct Hypervisors {
    pub caches: Arc<Caches>,
    pub drivers: Arc<Drivers>,
    pub inventories: Arc<Inventories>,
    pub logins: Arc<Logins>,
}

impl Hypervisors {
    /// The known state of a hypervisor, without a request to it.
    pub fn reach(&self, namespace: &str, name: &str) -> Reach {
        let unreadable = self.caches.hypervisors.unreadable(namespace);
        match self.caches.hypervisors.get(namespace, name) {
            Some(_) => self.inventories.reach(&ObjectKey::new(namespace, name)),
            None if unreadable.iter().any(|meta| meta.name.as_deref() == Some(name)) => {
                Reach::Unreachable("CAPW cannot read this object: see its condition Ready, and correct it".into())
            }
            None => Reach::Missing,
        }
    }

    /// A hypervisor and the connection to it. `None` if the object does not exist, or if machines may not use it (yet).
    pub fn connected(&self, namespace: &str, name: &str) -> Option<(Arc<WindowsHypervisor>, Arc<dyn Driver>)> {
        let object = self.caches.hypervisors.get(namespace, name)?;
        let driver = self.drivers.connected(&ObjectKey::new(namespace, name))?;
        Some((object, driver))
    }
}
