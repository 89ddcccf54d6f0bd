//! The triggers for a pass of a WindowsNodePool.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::memory::Memories;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Machine, MachinePool};
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::domain::identity::INFRASTRUCTURE;
use crate::domain::owner::machine_pool_of;
use crate::domain::pod_network::pods_per_node;
use crate::engine::caches::Caches;
use crate::engine::triggers::{Triggers, all_of, cluster_facts, concerned, generation, hypervisor_facts, named, namespace, of_cluster, of_owner};

pub fn triggers(
    caches: &Arc<Caches>,
    memories: &Arc<Memories>,
    requested: UnboundedReceiver<ObjectRef<WindowsNodePool>>,
) -> Triggers<WindowsNodePool> {
    let memories = memories.clone();
    let of_windows_machine = caches.windows_machines.0.map(move |object: &WindowsMachine| {
        memories.seen(&object.uid().unwrap_or_default());
        of_owner(object, "WindowsNodePool")
    });
    let known = caches.clone();
    let of_machine = caches.machines.0.map(move |machine: &Machine| {
        let name = &machine.spec.infrastructure_ref.name;
        let object = machine_pool_of(machine).and_then(|_| known.windows_machines.get(&namespace(machine), name));
        object.map(|object| of_owner(&*object, "WindowsNodePool")).unwrap_or_default()
    });
    let known = caches.clone();
    let of_config = caches.configs.0.map(move |config: &WindowsBootstrapConfig| {
        let machine = capi::owner(config.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsMachine");
        match machine.and_then(|owner| known.windows_machines.get(&namespace(config), &owner.name)) {
            Some(object) => of_owner(&*object, "WindowsNodePool"),
            // A MachinePool may name this configuration, or it may be the last object that a pool waits for.
            None => all_of(&known.pools, &namespace(config)),
        }
    });
    let of_machine_pool =
        caches.machine_pools.0.map(|pool: &MachinePool| named(Some(&pool.spec.template.spec.infrastructure_ref), "WindowsNodePool", pool));
    vec![
        of_windows_machine,
        of_machine,
        of_config,
        of_machine_pool,
        concerned(caches, &caches.clusters, cluster_facts, |caches, cluster| of_cluster(&caches.pools.all(&namespace(cluster)), cluster)),
        concerned(caches, &caches.windows_clusters, |c| format!("{:?}", pods_per_node(c)), |caches, c| all_of(&caches.pools, &namespace(c))),
        concerned(caches, &caches.hypervisors, hypervisor_facts, |caches, object| all_of(&caches.pools, &namespace(object))),
        concerned(caches, &caches.machine_templates, |t| generation(&t.metadata), |caches, t| all_of(&caches.pools, &namespace(t))),
        concerned(caches, &caches.config_templates, |t| generation(&t.metadata), |caches, t| all_of(&caches.pools, &namespace(t))),
        requested.boxed(),
    ]
}
