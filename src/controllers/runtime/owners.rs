//! Who asks for the node of one of our objects, as the caches have it. What is asked for is read in [`crate::lifecycle::owner`].

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::caches::Caches;
use super::nodes::Nodes;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::lifecycle::identity::{INFRASTRUCTURE, is_provisioned, vm_uuid};
use crate::lifecycle::owner::{NodeRequest, Owner, TargetCluster, machine_pool_of};

#[derive(Clone)]
pub struct Owners {
    caches: Arc<Caches>,
    nodes: Arc<Nodes>,
}

impl Owners {
    pub fn new(caches: Arc<Caches>, nodes: Arc<Nodes>) -> Self {
        Self { caches, nodes }
    }

    /// Who asks for a WindowsMachine.
    pub fn of_machine(&self, object: &WindowsMachine) -> Owner {
        let namespace = object.namespace().unwrap_or_default();
        let Some(reference) = capi::machine_owner(object.metadata.owner_references.as_ref()) else { return self.standalone(object) };
        let found = self.caches.machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
        let Some(machine) = found else { return Owner::Unseen };
        let Some(pool) = machine_pool_of(&machine) else { return NodeRequest::of_machine(&machine).into() };
        let pool = self.caches.machine_pools.get(&namespace, pool);
        let config = self.caches.config_of(object);
        NodeRequest::of_pool_machine(&machine, object, pool.as_deref(), config.as_deref()).into()
    }

    fn standalone(&self, object: &WindowsMachine) -> Owner {
        let Some(cluster) = ClusterRef::standalone(&object.metadata) else { return Owner::None };
        // Whether it has joined is not known yet, and it must not be taken for one that never did.
        if is_provisioned(object) && !self.nodes.are_known(&cluster) {
            return Owner::Unseen;
        }
        let node = self.nodes.of(&cluster, vm_uuid(object));
        let request = NodeRequest::standalone(object, &cluster, self.caches.config_of(object).as_deref(), node.as_deref());
        request.seen_unready(self.nodes.unready_since(&cluster, vm_uuid(object))).into()
    }

    /// Who asks for the node of a WindowsBootstrapConfig: its Machine, or the owner of the WindowsMachine of a pool.
    pub fn of_config(&self, object: &WindowsBootstrapConfig) -> Owner {
        let namespace = object.namespace().unwrap_or_default();
        let owners = object.metadata.owner_references.as_ref();
        if let Some(reference) = capi::owner(owners, INFRASTRUCTURE, "WindowsMachine") {
            let found = self.caches.windows_machines.get(&namespace, &reference.name).filter(|m| m.metadata.uid.as_deref() == Some(&reference.uid));
            return match found.map(|m| self.of_machine(&m)) {
                // Its Machine is still to come.
                None | Some(Owner::None) => Owner::Unseen,
                Some(owner) => owner,
            };
        }
        let found = capi::machine_owner(owners).and_then(|o| self.caches.machines.get(&namespace, &o.name));
        Owner::of(owners, found.as_deref())
    }

    /// The cluster of an object: its Cluster, or what its standalone pool joins; the latter without an endpoint, unless the pool names one.
    pub fn cluster_of(&self, meta: &ObjectMeta, pool: Option<&WindowsNodePool>) -> Option<TargetCluster> {
        let cluster = ClusterRef::of(meta)?;
        match &cluster.source {
            ClusterSource::ClusterApi(name) => self.caches.clusters.get(&cluster.namespace, name).map(|found| TargetCluster::of_cluster(&found)),
            _ => Some(TargetCluster::standalone(cluster, pool.and_then(|p| p.spec.cluster.as_ref()), None)),
        }
    }
}
