//! Which Machine one of our objects is made for, as the caches have it. The rules are in [`lifecycle::claim`].

use std::sync::Arc;

use kube::ResourceExt;

use super::Context;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Machine};
use crate::api::machine::WindowsMachine;
use crate::lifecycle::claim::{INFRASTRUCTURE, completed, machine_pool_of};
use crate::lifecycle::{self, Owner};

/// Who asks for the node.
#[derive(Clone, Debug)]
pub enum Claim {
    /// Nobody yet.
    None,
    /// A Machine that is not there (yet).
    Unseen,
    Machine(Arc<Machine>),
}

impl Claim {
    pub fn owner(&self) -> Owner<'_> {
        match self {
            Self::None => Owner::None,
            Self::Unseen => Owner::Unseen,
            Self::Machine(machine) => Owner::Machine(machine),
        }
    }

    pub fn machine(&self) -> Option<&Arc<Machine>> {
        match self {
            Self::Machine(machine) => Some(machine),
            _ => None,
        }
    }
}

impl Context {
    /// Who asks for a WindowsMachine.
    pub fn claim(&self, object: &WindowsMachine) -> Claim {
        let namespace = object.namespace().unwrap_or_default();
        let Some(reference) = capi::machine_owner(object.metadata.owner_references.as_ref()) else { return Claim::None };
        let found = self.stores.machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
        let Some(machine) = found else { return Claim::Unseen };
        let Some(pool) = machine_pool_of(&machine) else { return Claim::Machine(machine) };
        let pool = self.stores.machine_pools.get(&namespace, pool);
        let config = self.config_of(object);
        Claim::Machine(Arc::new(completed(&machine, object, pool.as_deref(), config.as_deref())))
    }

    /// Who asks for the node of a WindowsBootstrapConfig: a Machine, or whoever asks for the WindowsMachine of a pool.
    pub fn claim_of_config(&self, object: &WindowsBootstrapConfig) -> Claim {
        let namespace = object.namespace().unwrap_or_default();
        let owners = object.metadata.owner_references.as_ref();
        if let Some(reference) = capi::owner(owners, INFRASTRUCTURE, "WindowsMachine") {
            let found = self.stores.windows_machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
            return match found.map(|m| self.claim(&m)) {
                // Its Machine is still to come.
                None | Some(Claim::None) => Claim::Unseen,
                Some(claim) => claim,
            };
        }
        let found = capi::machine_owner(owners).and_then(|o| self.stores.machines.get(&namespace, &o.name));
        match lifecycle::Owner::of(owners, found.as_deref()) {
            Owner::None => Claim::None,
            Owner::Unseen => Claim::Unseen,
            Owner::Machine(_) => found.map_or(Claim::Unseen, Claim::Machine),
        }
    }

    /// The configuration of one machine of a pool: it has the name of the WindowsMachine, and belongs to it.
    pub fn config_of(&self, object: &WindowsMachine) -> Option<Arc<WindowsBootstrapConfig>> {
        let found = self.stores.configs.get(&object.namespace().unwrap_or_default(), &object.name_any())?;
        let owner = capi::owner(found.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsMachine")?;
        (Some(&owner.uid) == object.metadata.uid.as_ref()).then_some(found)
    }
}
