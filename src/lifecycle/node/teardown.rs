//! What comes before the end of the VM in a standalone pool: its Node is drained and deleted. Under Cluster API, core does that.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use crate::api::condition::{ConditionType, Desired, Reason};
use crate::lifecycle::Decision;
use crate::lifecycle::workload::Fault;

/// The watch shows the end of a Node that was deleted; this is for one that is slow.
const GOING: Duration = Duration::from_secs(5);
/// What a person can mend in or around the workload cluster is looked at again after this time.
const MEND: Duration = Duration::from_secs(10);
/// The watch of the Nodes begins.
const LISTING: Duration = Duration::from_secs(1);

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum TeardownStep<'a> {
    /// The VM may go: there is no Node, or it is left behind for this reason.
    Finished { left_behind: Option<&'static str> },
    /// The Node is in the way; what to report meanwhile.
    Wait(Decision<()>),
    /// Drain it ([`super::drain`]); when that is done, delete it.
    Drain(&'a Node),
    /// Try again with back-off: the error passes by itself.
    BackOff,
}

/// When the workload cluster can be used. `listed`: its Nodes are known; then `node` is that of the machine.
pub fn decide(listed: bool, node: Option<&Node>) -> TeardownStep<'_> {
    match node {
        _ if !listed => wait(LISTING, "the Nodes of the cluster are being listed".into()),
        Some(node) => TeardownStep::Drain(node),
        None => TeardownStep::Finished { left_behind: None },
    }
}

/// When the workload cluster cannot be used: `fault`, in words `error`; `None` passes by itself. `drain_is_over`: the time for the
/// drain has passed.
pub fn unusable(fault: Option<Fault>, error: &str, drain_is_over: bool) -> TeardownStep<'static> {
    match fault {
        Some(Fault::KubeconfigMissing) => TeardownStep::Finished { left_behind: Some("the kubeconfig of its cluster is gone") },
        Some(Fault::OwnClusterRefused) => TeardownStep::Finished { left_behind: Some("its namespace may not use the cluster that CAPW runs in") },
        _ if drain_is_over => TeardownStep::Finished { left_behind: Some("the time for its drain has passed") },
        Some(_) => wait(MEND, format!("the Node must go before the VM, and cannot: {error}")),
        None => TeardownStep::BackOff,
    }
}

/// What is reported once the Node was deleted.
pub fn deleted(node: &str) -> Decision<()> {
    waiting(GOING, format!("Node {node} is being removed"))
}

fn wait(after: Duration, message: String) -> TeardownStep<'static> {
    TeardownStep::Wait(waiting(after, message))
}

fn waiting(after: Duration, message: String) -> Decision<()> {
    Decision::new(()).say(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message)).look_again(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_drained_once_it_is_known_to_be_there() {
        let node = Node::default();
        assert!(matches!(decide(false, None), TeardownStep::Wait(_)), "it may be there");
        assert_eq!(decide(true, Some(&node)), TeardownStep::Drain(&node));
        assert_eq!(decide(true, None), TeardownStep::Finished { left_behind: None });
    }

    #[test]
    fn a_cluster_that_cannot_be_used_holds_a_machine_until_its_time_is_over() {
        for (fault, over, expected) in [
            (Some(Fault::KubeconfigMissing), false, "left"),
            (Some(Fault::KubeconfigMissing), true, "left"),
            (Some(Fault::OwnClusterRefused), false, "left"),
            (Some(Fault::Unreachable), false, "waits"),
            (Some(Fault::Forbidden), false, "waits"),
            (Some(Fault::Unreachable), true, "left"),
            (None, false, "again"),
            (None, true, "left"),
        ] {
            let step = match unusable(fault, "x", over) {
                TeardownStep::Finished { left_behind: Some(_) } => "left",
                TeardownStep::Wait(_) => "waits",
                TeardownStep::BackOff => "again",
                other => panic!("{other:?}"),
            };
            assert_eq!(step, expected, "{fault:?} {over}");
        }
    }
}
