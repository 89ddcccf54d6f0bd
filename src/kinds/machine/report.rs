//! The status of a WindowsMachine.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::guest;
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::{MachineAddress, MachineAddressType, MachineInitialization, WindowsMachine, WindowsMachineStatus};
use crate::domain::conditions::{carry_over, whole_second};
use crate::domain::identity::{chosen, host_name};
use crate::vm::{Journal, Present};

/// The next status of a WindowsMachine. `present` is the VM that the hypervisor has returned if the VM runs, else `None`.
pub fn status(
    object: &WindowsMachine,
    said: &[Desired],
    present: Option<&Present>,
    journal: Option<Journal>,
    now: Timestamp,
) -> WindowsMachineStatus {
    let mut status = object.status.clone().unwrap_or_default();
    (status.conditions, status.observed_generation) =
        carry_over(&status.conditions, status.observed_generation, said, object.metadata.generation, now);
    if let Some(journal) = journal {
        status.journal = journal;
    }
    // Reported while the Node blocks the deletion. The deletion timestamp comes from another clock.
    if said.iter().any(|said| said.type_ == ConditionType::Deleting) && ClusterRef::standalone(&object.metadata).is_some() {
        status.draining_since.get_or_insert(Time(whole_second(now)));
    }
    // Reported while the VM is being stopped.
    if said.iter().any(|said| said.type_ == ConditionType::Ready && said.reason == Reason::Deleting) {
        status.stopping_since.get_or_insert(Time(whole_second(now)));
    }
    if let Some(vm) = present {
        status.initialization = Some(MachineInitialization { provisioned: Some(true) });
        status.failure_domain = chosen(object);
        let host = host_name(object).ok().map(|h| h.to_string());
        let name = host.iter().map(|h| MachineAddress { type_: MachineAddressType::Hostname, address: h.clone() });
        let addresses = vm.addresses.iter().map(|a| MachineAddress { type_: MachineAddressType::InternalIp, address: a.to_string() });
        // A guest that reboots has no address for a moment: the last known addresses stay.
        if !vm.addresses.is_empty() || status.addresses.is_empty() {
            status.addresses = name.chain(addresses).collect();
        }
        status.host_name = host;
        status.powered_on_at.get_or_insert(Time(whole_second(now)));
        status.bootstrap = match &object.status {
            Some(stored) if *stored == status => guest::told(Some(stored), vm.report.as_ref(), now),
            _ => guest::told_along(&status, vm.report.as_ref(), now),
        };
    }
    status
}
