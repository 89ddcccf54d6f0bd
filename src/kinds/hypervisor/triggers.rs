//! The triggers for a pass of a WindowsHypervisor.

use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::reflector::ObjectRef;

use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::domain::identity::chosen;
use crate::engine::caches::Caches;
use crate::engine::triggers::{Triggers, namespace};
use crate::hypervisor::drivers::Drivers;

/// A hypervisor that is being deleted waits for its last machine. A hypervisor on which something has changed is listed.
pub fn triggers(caches: &Arc<Caches>, drivers: &Drivers) -> Triggers<WindowsHypervisor> {
    let held = caches.clone();
    let of_machine = caches.windows_machines.0.map(move |machine: &WindowsMachine| {
        let used = chosen(machine).filter(|_| machine.metadata.deletion_timestamp.is_some());
        let found = used.and_then(|name| held.hypervisors.get(&namespace(machine), &name));
        found.filter(|h| h.metadata.deletion_timestamp.is_some()).map(|h| ObjectRef::from_obj(&*h))
    });
    let hinted = drivers.hints().map(|key| ObjectRef::new(&key.name).within(&key.namespace)).boxed();
    vec![of_machine, hinted]
}
