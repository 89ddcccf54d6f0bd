//! The triggers for a pass of a WindowsMachine.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use kube::runtime::reflector::ObjectRef;

use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::Machine;
use crate::api::machine::WindowsMachine;
use crate::engine::caches::Caches;
use crate::engine::triggers::{Triggers, all_of, cluster_facts, concerned, hypervisor_facts, named, namespace, of_cluster, of_owner};

pub fn triggers(caches: &Arc<Caches>, requested: UnboundedReceiver<ObjectRef<WindowsMachine>>) -> Triggers<WindowsMachine> {
    vec![
        concerned(caches, &caches.clusters, cluster_facts, |caches, cluster| of_cluster(&caches.windows_machines.all(&namespace(cluster)), cluster)),
        concerned(caches, &caches.hypervisors, hypervisor_facts, |caches, hypervisor| all_of(&caches.windows_machines, &namespace(hypervisor))),
        caches.machines.0.map(|machine: &Machine| named(Some(&machine.spec.infrastructure_ref), "WindowsMachine", machine)),
        // The data of the machine is ready.
        caches.configs.0.map(|config: &WindowsBootstrapConfig| of_owner(config, "WindowsMachine")),
        requested.boxed(),
    ]
}
