//! Decides how one machine of a pool is removed.

use k8s_openapi::api::core::v1::Node;

use super::situation::{Member, State};
use super::step::Why;
use crate::api::capi::{MACHINE_FINALIZER, Machine};
use crate::domain::gate::has_finalizer;
use crate::domain::identity::NodeIdentity;
use crate::domain::owner::is_ready;

/// The object to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The Machine, which drains the Node first (`docs/design/cluster-api.md#pool-machines`).
    Machine,
    /// The WindowsMachine: it drains its Node itself, or Cluster API no longer creates a Machine for it.
    WindowsMachine,
    /// None yet, or the machine is already being removed.
    Nothing,
}

/// The removal of a machine from a pool that stays.
pub fn of_machine(standalone: bool, machine: Option<&Machine>) -> Removal {
    match machine {
        _ if standalone => Removal::WindowsMachine,
        // Before core has set its finalizer, a Machine would disappear at once and leave its WindowsMachine, which would get another Machine.
        Some(machine) if has_finalizer(&machine.metadata, MACHINE_FINALIZER) => Removal::Machine,
        _ => Removal::Nothing,
    }
}

/// The removal of a machine with its pool. `is_leaving`: the machine's removal was requested; `is_deleted`: the WindowsMachine is being deleted.
pub fn with_pool(standalone: bool, machine: Option<&Machine>, is_leaving: bool, is_deleted: bool) -> Removal {
    if is_leaving && (standalone || machine.is_some() || is_deleted) {
        return Removal::Nothing;
    }
    match of_machine(standalone, machine) {
        // Core no longer creates a Machine for a WindowsMachine that has none.
        Removal::Nothing if machine.is_none() => Removal::WindowsMachine,
        removal => removal,
    }
}

/// Whether a machine is removed because of its Node: the machine failed because of the Node, or is removed first because its Node is not Ready.
pub fn is_because_of_its_node(member: &Member, why: Why) -> bool {
    match why {
        Why::Named => false,
        Why::Failed => member.failed_by_its_node(),
        Why::TooMany | Why::Outdated => !matches!(member.state, State::Ready { .. }),
    }
}

/// Whether a machine that is to be removed because of its Node is healthy. `node` is the current Node of its name.
pub fn is_refuted(member: &Member, why: Why, machine: &NodeIdentity, node: &Node) -> bool {
    machine.is_of(node) && (is_ready(node) || (why == Why::Failed && member.had_no_node()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::{HostName, ProviderId, VmUuid};
    use crate::kinds::pool::decide::situation::{Failure, Replace};
    use serde_json::json;

    #[test]
    fn a_node_that_is_there_by_now_or_ready_again_keeps_its_machine() {
        let machine = NodeIdentity { name: HostName::parse("m").unwrap(), provider_id: ProviderId { hypervisor: "h".into(), vm: VmUuid::of("u") } };
        let failed = |state, why: &str| Member {
            name: "m".into(),
            created: jiff::Timestamp::UNIX_EPOCH,
            domain: None,
            up_to_date: true,
            state,
            failed: Some(Failure { why: why.into(), replace: Replace::InBudget }),
            given_up_at: None,
            delete_first: false,
            named: false,
            build: None,
        };
        let node = |vm: VmUuid, ready: &str| -> Node {
            serde_json::from_value(
                json!({"metadata": {"name": "m"}, "spec": {"providerID": format!("windows://h/{vm}")}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
            )
            .unwrap()
        };
        let (own, other) = (VmUuid::of("u"), VmUuid::of("other"));
        for (member, why, node, refuted) in [
            (failed(State::NotReady, "NodeStatusUnknown"), Why::Failed, node(own, "True"), true),
            (failed(State::NotReady, "NodeStatusUnknown"), Why::Failed, node(own, "Unknown"), false),
            (failed(State::NotReady, "NodeStatusUnknown"), Why::Failed, node(other, "True"), false),
            (failed(State::NotReady, "NodeDeleted"), Why::Failed, node(own, "Unknown"), true),
            (failed(State::Starting, "NodeNeverJoined"), Why::Failed, node(own, "False"), true),
            (failed(State::Starting, "NodeNeverJoined"), Why::Failed, node(other, "True"), false),
            // The Node exists, but is not Ready yet.
            (failed(State::Starting, "NodeNeverJoined"), Why::Outdated, node(own, "False"), false),
            (failed(State::Starting, "NodeNeverJoined"), Why::Outdated, node(own, "True"), true),
            (failed(State::NotReady, "NodeStatusUnknown"), Why::TooMany, node(own, "True"), true),
        ] {
            assert_eq!(is_refuted(&member, why, &machine, &node), refuted, "{member:?} {why:?}");
        }
        let ready = || failed(State::Ready { since: jiff::Timestamp::UNIX_EPOCH }, "VirtualMachineRemoved");
        for (member, why, expected) in [
            (failed(State::Starting, "NodeNeverJoined"), Why::Named, false),
            (failed(State::NotReady, "VirtualMachineRemoved"), Why::Failed, false),
            (ready(), Why::Outdated, false),
            (ready(), Why::TooMany, false),
        ] {
            assert_eq!(is_because_of_its_node(&member, why), expected, "{member:?} {why:?}");
        }
    }

    fn machine(finalizers: &[&str]) -> Machine {
        serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "m", "finalizers": finalizers}, "spec": {}}))
        .unwrap()
    }

    #[test]
    fn a_machine_goes_by_its_machine_once_core_looks_after_it() {
        let (new, known) = (machine(&[]), machine(&[MACHINE_FINALIZER]));
        for (standalone, machine, removal) in [
            (true, None, Removal::WindowsMachine),
            (false, None, Removal::Nothing),
            (false, Some(&new), Removal::Nothing),
            (false, Some(&known), Removal::Machine),
        ] {
            assert_eq!(of_machine(standalone, machine), removal, "{standalone} {machine:?}");
        }
    }

    #[test]
    fn with_its_pool_a_machine_without_a_machine_goes_too() {
        let (new, known) = (machine(&[]), machine(&[MACHINE_FINALIZER]));
        for (machine, is_leaving, is_deleted, removal) in [
            (None, false, false, Removal::WindowsMachine),
            // The Machine was deleted by now, and the WindowsMachine was left.
            (None, true, false, Removal::WindowsMachine),
            (None, true, true, Removal::Nothing),
            (Some(&new), false, false, Removal::Nothing),
            (Some(&known), false, false, Removal::Machine),
            (Some(&known), true, false, Removal::Nothing),
        ] {
            assert_eq!(with_pool(false, machine, is_leaving, is_deleted), removal, "{machine:?} {is_leaving} {is_deleted}");
        }
        assert_eq!(with_pool(true, None, false, false), Removal::WindowsMachine);
        assert_eq!(with_pool(true, None, true, true), Removal::Nothing);
    }
}
