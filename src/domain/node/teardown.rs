//! The steps before the VM of a standalone pool is deleted: its Node is drained and deleted. Under Cluster API, core does that, except for a Node
//! that it does not know yet.

use std::time::Duration;

use jiff::Timestamp;

use super::drain::elapsed;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::domain::decision::Decision;
use crate::domain::fault::Fault;
use crate::domain::owner::{Owner, TargetCluster};

/// The delay for a watch that is slow to report a deleted Node.
const GOING: Duration = Duration::from_secs(5);
/// The interval for checking faults that a person can fix in or around the workload cluster.
const RECHECK: Duration = Duration::from_secs(10);
/// Under Cluster API, the time since CAPW observed its deletion that a machine whose VM no longer exists waits for an unusable workload cluster. Core
/// itself does not wait for a Node that it does not know.
const CORE: Duration = Duration::from_secs(120);

/// The next step when the workload cluster cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum TeardownStep {
    /// The VM may be deleted, and the Node is left behind for this reason.
    LeaveBehind(&'static str),
    /// The Node must be removed first; the decision has the report.
    Wait(Decision<()>),
    /// Retry with back-off: the error is temporary.
    BackOff,
}

/// Returns the step when the workload cluster cannot be used because of `fault`, with the message `error`; `None` is temporary. `is_over`: the time
/// for the teardown of the Node has passed.
pub fn unusable(fault: Option<Fault>, error: &str, is_over: bool) -> TeardownStep {
    match fault {
        Some(Fault::KubeconfigMissing) => TeardownStep::LeaveBehind("the kubeconfig of its cluster is gone"),
        Some(Fault::OwnClusterRefused) => TeardownStep::LeaveBehind("its namespace may not use the cluster that CAPW runs in"),
        _ if is_over => TeardownStep::LeaveBehind("the time for it has passed"),
        Some(_) => TeardownStep::Wait(waiting(RECHECK, format!("the Node must go first, and cannot: {error}"))),
        None => TeardownStep::BackOff,
    }
}

/// Whether a Node may exist although the VM no longer exists. In a standalone pool, that is a Node that appeared while the watch was behind. Under
/// Cluster API, it is a Node that core has not found yet: core deletes only the Node that the Machine names, and skips it if its connection to the
/// workload cluster is down just then (`isDeleteNodeAllowed` in core's `machine_controller.go`). The Nodes of a deleted cluster are deleted with it.
pub fn may_leave_node(owner: &Owner, cluster: &TargetCluster) -> bool {
    let is_known_to_core = owner.request().is_some_and(|request| request.node.is_some());
    cluster.cluster.is_standalone() || (cluster.control_plane_initialized && !cluster.is_deleting && !is_known_to_core)
}

/// Whether a machine of Cluster API has waited long enough for an unusable workload cluster. `since`: when CAPW first observed its deletion.
pub fn is_over(since: Timestamp, now: Timestamp) -> bool {
    elapsed(since, now) >= CORE
}

/// Returns the condition that is reported from the first failed attempt on.
pub fn begun() -> Desired {
    Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message("its Node goes first")
}

/// Returns the decision after the Node was deleted.
pub fn deleted(node: &str) -> Decision<()> {
    waiting(GOING, format!("Node {node} is being removed"))
}

fn waiting(after: Duration, message: String) -> Decision<()> {
    Decision::new(()).with_condition(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message)).requeue_after(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::capi::{Cluster, ClusterSpec};
    use crate::api::cluster_ref::{ClusterRef, ClusterSource};
    use crate::domain::owner::NodeRequest;

    #[test]
    fn core_leaves_a_node_that_its_machine_does_not_name() {
        let joined = || Owner::from(NodeRequest { node: Some("win-1".into()), ..NodeRequest::default() });
        let unnamed = || Owner::from(NodeRequest::default());
        let of_core =
            TargetCluster { control_plane_initialized: true, ..TargetCluster::of_cluster(&Cluster::new("c1", ClusterSpec::default()), None) };
        let ending = TargetCluster { is_deleting: true, ..of_core.clone() };
        let unborn = TargetCluster { control_plane_initialized: false, ..of_core.clone() };
        let source = ClusterSource::Kubeconfig { secret: "other".into(), key: "value".into() };
        let standalone = TargetCluster::standalone(ClusterRef { namespace: "lab".into(), source }, None, None);
        for (owner, cluster, expected) in [
            (joined(), &of_core, false),
            (unnamed(), &of_core, true),
            (Owner::Unseen, &of_core, true),
            (unnamed(), &ending, false),
            (unnamed(), &unborn, false),
            (joined(), &standalone, true),
        ] {
            assert_eq!(may_leave_node(&owner, cluster), expected, "{owner:?} {cluster:?}");
        }
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
                TeardownStep::LeaveBehind(_) => "left",
                TeardownStep::Wait(_) => "waits",
                TeardownStep::BackOff => "again",
            };
            assert_eq!(step, expected, "{fault:?} {over}");
        }
    }
}
