//! Which Machine one of our objects is made for, as the caches have it. The rules are in [`lifecycle::claim`].

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::controllers::Context;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster, Machine};
use crate::api::machine::WindowsMachine;
use crate::api::pool::{WindowsNodePool, joins};
use crate::lifecycle::claim::{INFRASTRUCTURE, completed, machine_pool_of};
use crate::lifecycle::machine::{is_provisioned, vm_uuid};
use crate::lifecycle::{self, Owner, standalone};

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
        let Some(reference) = capi::machine_owner(object.metadata.owner_references.as_ref()) else { return self.claim_of_pool(object, &namespace) };
        let found = self.stores.machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
        let Some(machine) = found else { return Claim::Unseen };
        let Some(pool) = machine_pool_of(&machine) else { return Claim::Machine(machine) };
        let pool = self.stores.machine_pools.get(&namespace, pool);
        let config = self.config_of(object);
        Claim::Machine(Arc::new(completed(&machine, object, pool.as_deref(), config.as_deref())))
    }

    /// A pool that stands alone asks for its machines as a Machine would.
    fn claim_of_pool(&self, object: &WindowsMachine, namespace: &str) -> Claim {
        let Some(joins) = joins(&object.metadata) else { return Claim::None };
        // Whether it has joined is not known yet, and it must not be taken for one that never did.
        if is_provisioned(object) && !self.nodes.are_known(namespace, joins) {
            return Claim::Unseen;
        }
        let node = self.nodes.of(namespace, joins, vm_uuid(object));
        Claim::Machine(Arc::new(standalone::machine(object, joins, self.config_of(object).as_deref(), node.as_deref())))
    }

    /// The Cluster of an object, or what a pool that stands alone joins; then without an endpoint, unless the pool names one.
    pub fn cluster_of(&self, meta: &ObjectMeta, pool: Option<&WindowsNodePool>) -> Option<Arc<Cluster>> {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        match joins(meta) {
            Some(joins) => Some(Arc::new(standalone::cluster(joins, pool.and_then(|p| p.spec.cluster.as_ref()), None))),
            None => self.stores.clusters.get(namespace, capi::cluster_name(meta.labels.as_ref())?),
        }
    }

    /// The pool that a WindowsMachine is of.
    pub fn pool_of(&self, object: &WindowsMachine) -> Option<Arc<WindowsNodePool>> {
        let owner = capi::owner(object.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsNodePool")?;
        self.stores.pools.get(&object.namespace().unwrap_or_default(), &owner.name).filter(|p| p.metadata.uid.as_deref() == Some(&owner.uid))
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
