//! The triggers for a pass of a WindowsBootstrapConfig.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Machine};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::domain::identity::chosen;
use crate::domain::owner::machine_pool_of;
use crate::domain::pod_network::{pod_network, pods_per_node};
use crate::engine::caches::Caches;
use crate::engine::triggers::{Triggers, cluster_facts, concerned, named, namespace};

pub fn triggers(caches: &Arc<Caches>, requested: UnboundedReceiver<ObjectRef<WindowsBootstrapConfig>>) -> Triggers<WindowsBootstrapConfig> {
    vec![
        concerned(caches, &caches.clusters, cluster_facts, |caches, cluster| {
            of_cluster(caches, &ClusterRef::cluster_api(&namespace(cluster), &cluster.name_any()))
        }),
        caches.machines.0.map(of_machine),
        // The data needs the hypervisor that was chosen for the machine.
        concerned(caches, &caches.windows_machines, |machine| format!("{:?}", chosen(machine)), of_windows_machine),
        // The WindowsCluster decides whether a Node starts with the taint of a network that is still to come, and how many pods get addresses there.
        concerned(caches, &caches.windows_clusters, |cluster| format!("{:?} {:?}", pod_network(cluster), pods_per_node(cluster)), of_windows_cluster),
        requested.boxed(),
    ]
}

/// The configuration that a Machine names. The configuration of a pool machine has the name of its WindowsMachine.
fn of_machine(machine: &Machine) -> Vec<ObjectRef<WindowsBootstrapConfig>> {
    match machine_pool_of(machine) {
        Some(_) => named(Some(&machine.spec.infrastructure_ref), "WindowsMachine", machine),
        None => named(machine.spec.bootstrap.config_ref.as_ref(), "WindowsBootstrapConfig", machine),
    }
}

fn of_windows_cluster(caches: &Caches, object: &WindowsCluster) -> Vec<ObjectRef<WindowsBootstrapConfig>> {
    ClusterRef::of_windows_cluster(object).map(|cluster| of_cluster(caches, &cluster)).unwrap_or_default()
}

fn of_cluster(caches: &Caches, cluster: &ClusterRef) -> Vec<ObjectRef<WindowsBootstrapConfig>> {
    let mut configs = caches.configs.all(&cluster.namespace);
    configs.retain(|config| ClusterRef::of_config(config).as_ref() == Some(cluster));
    configs.iter().map(|config| ObjectRef::from_obj(&**config)).collect()
}

fn of_windows_machine(caches: &Caches, object: &WindowsMachine) -> Vec<ObjectRef<WindowsBootstrapConfig>> {
    let owner = capi::machine_owner(object.metadata.owner_references.as_ref());
    match owner.and_then(|owner| caches.machines.get(&namespace(object), &owner.name)) {
        Some(machine) => of_machine(&machine),
        // The machine of a standalone pool.
        None => caches.config_of(object).map(|config| ObjectRef::from_obj(&*config)).into_iter().collect(),
    }
}
