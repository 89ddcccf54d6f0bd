//! How one machine of a pool is removed.

use k8s_openapi::api::core::v1::Node;

use super::Member;
use crate::api::capi::{MACHINE_FINALIZER, Machine};
use crate::lifecycle::has_finalizer;
use crate::lifecycle::identity::NodeIdentity;
use crate::lifecycle::owner::is_ready;

/// Which object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The Machine, which drains the Node first (`docs/design/cluster-api.md#pool-machines`).
    Machine,
    /// The WindowsMachine: it drains its Node itself, or Cluster API makes no Machine for it any more.
    WindowsMachine,
    /// None yet, or it is being removed.
    Nothing,
}

/// Of a pool that stays.
pub fn of_machine(standalone: bool, machine: Option<&Machine>) -> Removal {
    match machine {
        _ if standalone => Removal::WindowsMachine,
        // Before core looks after it, a Machine would vanish at once and leave its WindowsMachine, for which core makes another.
        Some(machine) if has_finalizer(&machine.metadata, MACHINE_FINALIZER) => Removal::Machine,
        _ => Removal::Nothing,
    }
}

/// Of a pool that is being deleted. `is_leaving`: the removal of the machine was asked for; `is_deleted`: that of the WindowsMachine.
pub fn with_pool(standalone: bool, machine: Option<&Machine>, is_leaving: bool, is_deleted: bool) -> Removal {
    if is_leaving && (standalone || machine.is_some() || is_deleted) {
        return Removal::Nothing;
    }
    match of_machine(standalone, machine) {
        // Core makes no Machine any more for what is left without one.
        Removal::Nothing if machine.is_none() => Removal::WindowsMachine,
        removal => removal,
    }
}

/// Whether a machine that is to be removed because of its Node is well: `node` is the one of its name, as it is now.
pub fn is_refuted(member: &Member, machine: &NodeIdentity, node: &Node) -> bool {
    machine.is_of(node) && (member.had_no_node() || is_ready(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::{HostName, ProviderId, VmUuid};
    use crate::lifecycle::pool::{Failure, Replace, State};
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
        for (member, node, refuted) in [
            (failed(State::NotReady, "NodeStatusUnknown"), node(own, "True"), true),
            (failed(State::NotReady, "NodeStatusUnknown"), node(own, "Unknown"), false),
            (failed(State::NotReady, "NodeStatusUnknown"), node(other, "True"), false),
            (failed(State::NotReady, "NodeDeleted"), node(own, "Unknown"), true),
            (failed(State::Starting, "NodeNeverJoined"), node(own, "False"), true),
            (failed(State::Starting, "NodeNeverJoined"), node(other, "True"), false),
        ] {
            assert_eq!(is_refuted(&member, &machine, &node), refuted, "{member:?}");
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
            // Its Machine is gone by now, and the WindowsMachine was left.
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
