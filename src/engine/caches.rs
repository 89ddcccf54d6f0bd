//! The caches of the watches: one per kind, shared by all controllers. Reading them costs no request.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::roles::Roles;
use super::watch::{Watch, Watching};
use crate::api::bootstrap_config::{WindowsBootstrapConfig, WindowsBootstrapConfigTemplate};
use crate::api::capi::{self, Cluster, Machine, MachinePool};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{WindowsMachine, WindowsMachineTemplate};
use crate::api::name::ObjectKey;
use crate::api::pool::{PoolCluster, WindowsNodePool};
use crate::domain::identity::{INFRASTRUCTURE, NodeIdentity, is_first_of, is_inherited, own_vm, vm_uuid};
use crate::domain::owner::TargetCluster;
use crate::domain::pod_network::pods_per_node;
use crate::kinds::windows_cluster::decide::step::of_standalone;
use crate::kube_api::cluster::Kind;

/// The caches that decisions read.
pub struct Caches {
    pub clusters: Cache<Cluster>,
    pub machines: Cache<Machine>,
    pub machine_pools: Cache<MachinePool>,
    pub windows_machines: Cache<WindowsMachine>,
    pub configs: Cache<WindowsBootstrapConfig>,
    pub hypervisors: Cache<WindowsHypervisor>,
    pub windows_clusters: Cache<WindowsCluster>,
    pub pools: Cache<WindowsNodePool>,
    pub machine_templates: Cache<WindowsMachineTemplate>,
    pub config_templates: Cache<WindowsBootstrapConfigTemplate>,
}

impl Caches {
    /// Starts only the watches that these roles need, because the process has no right to others. The watch filter decides which objects get a
    /// pass, not which are cached: selected objects refer to others, and a hypervisor serves machines of any filter.
    pub fn start(watching: &Watching, roles: Roles) -> Self {
        let watching = &Watching { selection: watching.selection.unfiltered(), ..watching.clone() };
        Self {
            clusters: Cache(Watch::start_optional(watching)),
            machines: optional(true, watching),
            machine_pools: optional(roles.infrastructure || roles.bootstrap, watching),
            windows_machines: of_infrastructure(roles, watching),
            configs: if roles.bootstrap { cache(true, watching) } else { optional(roles.infrastructure, watching) },
            hypervisors: cache(roles.infrastructure, watching),
            windows_clusters: of_infrastructure(roles, watching),
            pools: cache(roles.infrastructure, watching),
            machine_templates: cache(roles.infrastructure, watching),
            config_templates: optional(roles.infrastructure, watching),
        }
    }

    /// Creates caches that are empty and stay empty.
    #[cfg(test)]
    pub fn empty() -> Self {
        Self {
            clusters: Cache(Watch::unused()),
            machines: Cache(Watch::unused()),
            machine_pools: Cache(Watch::unused()),
            windows_machines: Cache(Watch::unused()),
            configs: Cache(Watch::unused()),
            hypervisors: Cache(Watch::unused()),
            windows_clusters: Cache(Watch::unused()),
            pools: Cache(Watch::unused()),
            machine_templates: Cache(Watch::unused()),
            config_templates: Cache(Watch::unused()),
        }
    }

    /// Returns when every cache has been filled once, because decisions read several caches.
    pub async fn ready(&self) {
        tokio::join!(
            self.clusters.0.ready(),
            self.machines.0.ready(),
            self.machine_pools.0.ready(),
            self.windows_machines.0.ready(),
            self.configs.0.ready(),
            self.hypervisors.0.ready(),
            self.windows_clusters.0.ready(),
            self.pools.0.ready(),
            self.machine_templates.0.ready(),
            self.config_templates.0.ready(),
        );
    }
}

impl Caches {
    /// Returns the pool that a WindowsMachine belongs to.
    pub fn pool_of(&self, object: &WindowsMachine) -> Option<Arc<WindowsNodePool>> {
        let owner = capi::owner(object.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsNodePool")?;
        self.pools.get(&object.namespace().unwrap_or_default(), &owner.name).filter(|p| p.metadata.uid.as_deref() == Some(&owner.uid))
    }

    /// Returns the cluster that machines join: a Cluster, or the cluster that a standalone pool with this spec names. The latter has no endpoint,
    /// unless the pool or a WindowsCluster names one.
    pub fn target_cluster(&self, cluster: ClusterRef, pool: Option<&PoolCluster>) -> Option<TargetCluster> {
        let infrastructure = self.windows_cluster_of(&cluster);
        match &cluster.source {
            ClusterSource::ClusterApi(name) => {
                let found = self.clusters.get(&cluster.namespace, name)?;
                Some(TargetCluster::of_cluster(&found, infrastructure.as_deref()))
            }
            _ => Some(TargetCluster::standalone(cluster, pool, infrastructure.as_deref())),
        }
    }

    /// Returns the WindowsCluster that represents a cluster: the one that its Cluster names, or one that names the cluster.
    pub fn windows_cluster_of(&self, cluster: &ClusterRef) -> Option<Arc<WindowsCluster>> {
        if let ClusterSource::ClusterApi(name) = &cluster.source {
            let found = self.clusters.get(&cluster.namespace, name)?;
            return self.windows_clusters.get(&cluster.namespace, found.windows_cluster()?);
        }
        of_standalone(cluster, self.windows_clusters.all(&cluster.namespace))
    }

    /// Returns how many pods have an address on a Windows node of a cluster, if that was read.
    pub fn pods_per_node(&self, cluster: Option<&ClusterRef>) -> Option<u64> {
        pods_per_node(&*self.windows_cluster_of(cluster?)?)
    }

    /// Returns the WindowsMachine that owns the VM that this object names, if that is another object. It may be in any namespace: every user who
    /// may write a WindowsMachine can write its provider ID.
    pub fn first_with_the_vm_of(&self, object: &WindowsMachine) -> Option<ObjectKey> {
        if !is_inherited(object) {
            return None;
        }
        let vm = vm_uuid(object);
        if let Some(unreadable) = self.windows_machines.0.never_read().iter().find(|meta| own_vm(meta) == vm) {
            return Some(ObjectKey::of(unreadable));
        }
        let mut all = self.windows_machines.0.store().state();
        all.retain(|other| vm_uuid(other) == vm);
        let first = all.into_iter().reduce(|one, other| if is_first_of(&one, &other) { one } else { other })?;
        (first.uid() != object.uid() && is_first_of(&first, object)).then(|| ObjectKey::of(&first.metadata))
    }

    /// Returns the identity that the Node of a machine must have. `None` also for a copy of another machine: the Node belongs to the original.
    pub fn node_of(&self, object: &WindowsMachine) -> Option<NodeIdentity> {
        NodeIdentity::of(object).filter(|_| self.first_with_the_vm_of(object).is_none())
    }

    /// Returns the configuration of a machine of a pool: it has the name of the WindowsMachine and belongs to it.
    pub fn config_of(&self, object: &WindowsMachine) -> Option<Arc<WindowsBootstrapConfig>> {
        let found = self.configs.get(&object.namespace().unwrap_or_default(), &object.name_any())?;
        let owner = capi::owner(found.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsMachine")?;
        (Some(&owner.uid) == object.metadata.uid.as_ref()).then_some(found)
    }
}

/// The cache of a kind that the bootstrap provider reads too. Alone, that provider runs under the infrastructure of others, where the kind may not
/// be installed.
fn of_infrastructure<K: Kind>(roles: Roles, watching: &Watching) -> Cache<K> {
    if roles.infrastructure { cache(true, watching) } else { optional(roles.bootstrap, watching) }
}

fn cache<K: Kind>(needed: bool, watching: &Watching) -> Cache<K> {
    Cache(if needed { Watch::start(watching) } else { Watch::unused() })
}

/// The cache of a kind that may not be installed.
fn optional<K: Kind>(needed: bool, watching: &Watching) -> Cache<K> {
    Cache(if needed { Watch::start_optional(watching) } else { Watch::unused() })
}

/// A cache of one namespaced kind, with its watch.
pub struct Cache<K: Kind>(pub Watch<K>);

impl<K: Kind> Cache<K> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.0.store().get(&ObjectRef::new(name).within(namespace))
    }

    /// Returns every object of the namespace.
    pub fn all(&self, namespace: &str) -> Vec<Arc<K>> {
        self.0.store().state().into_iter().filter(|o| o.meta().namespace.as_deref() == Some(namespace)).collect()
    }

    /// Returns the metadata of the objects of the namespace that could never be read, which is all that is known of them. Call this before
    /// [`Cache::all`].
    pub fn unreadable(&self, namespace: &str) -> Vec<ObjectMeta> {
        let mut all = self.0.never_read();
        all.retain(|meta| meta.namespace.as_deref() == Some(namespace));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Counts the objects of the namespace whose metadata `is_one` accepts, including objects that could never be read.
    pub fn count(&self, namespace: &str, is_one: impl Fn(&ObjectMeta) -> bool) -> usize {
        let unreadable = self.unreadable(namespace).iter().filter(|meta| is_one(meta)).count();
        unreadable + self.all(namespace).iter().filter(|object| is_one(object.meta())).count()
    }

    /// Returns the sorted names of all objects of the namespace that are not being deleted, including objects that could never be read.
    pub fn names(&self, namespace: &str) -> Vec<String> {
        let unreadable = self.unreadable(namespace);
        let all = self.all(namespace);
        let there = unreadable.iter().chain(all.iter().map(|object| object.meta())).filter(|meta| meta.deletion_timestamp.is_none());
        let names: BTreeSet<String> = there.filter_map(|meta| meta.name.clone()).collect();
        names.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{holding, read};

    /// A configuration with the machine's name that was created before it has the token of that machine.
    #[test]
    fn a_configuration_is_that_of_the_machine_with_its_uid() {
        let machine: WindowsMachine = read(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "m", "namespace": "lab", "uid": "w"}, "spec": {"image": "w"}}));
        for (owner, is_its) in [("w", true), ("before", false)] {
            let owners = json!([{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "name": "m", "uid": owner}]);
            let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
                "metadata": {"name": "m", "namespace": "lab", "ownerReferences": owners}, "spec": {}});
            let caches = Caches { configs: holding(vec![config]), ..Caches::empty() };
            assert_eq!(caches.config_of(&machine).is_some(), is_its, "{owner}");
        }
    }
}
