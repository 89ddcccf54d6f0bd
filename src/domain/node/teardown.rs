//! What comes before the end of the VM in a standalone pool: its Node is drained and deleted. Under Cluster API, core does that, but for a Node
//! that it does not know of yet.

use std::time::Duration;

use jiff::Timestamp;

use super::drain::elapsed;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachine;
use crate::domain::decision::Decision;
use crate::domain::fault::Fault;
use crate::domain::owner::{Owner, TargetCluster};

/// The watch shows the end of a Node that was deleted; this is for one that is slow.
const GOING: Duration = Duration::from_secs(5);
/// What a person can fix in or around the workload cluster is checked again after this time.
const RECHECK: Duration = Duration::from_secs(10);
/// Under Cluster API, a machine whose VM is gone waits so long from its deletion on for a workload cluster that cannot be used. Core itself does not
/// wait for a Node that it does not know of.
const CORE: Duration = Duration::from_secs(120);

/// What comes next when the workload cluster cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum TeardownStep {
    /// The VM may go, and the Node is left behind for this reason.
    LeaveBehind(&'static str),
    /// The Node is in the way; what to report meanwhile.
    Wait(Decision<()>),
    /// Try again with back-off: the error passes by itself.
    BackOff,
}

/// When the workload cluster cannot be used: `fault`, in words `error`; `None` passes by itself. `is_over`: the time for the teardown of the
/// Node has passed.
pub fn unusable(fault: Option<Fault>, error: &str, is_over: bool) -> TeardownStep {
    match fault {
        Some(Fault::KubeconfigMissing) => TeardownStep::LeaveBehind("the kubeconfig of its cluster is gone"),
        Some(Fault::OwnClusterRefused) => TeardownStep::LeaveBehind("its namespace may not use the cluster that CAPW runs in"),
        _ if is_over => TeardownStep::LeaveBehind("the time for it has passed"),
        Some(_) => TeardownStep::Wait(waiting(RECHECK, format!("the Node must go first, and cannot: {error}"))),
        None => TeardownStep::BackOff,
    }
}

/// Whether a Node may be left when nothing is left of the VM. In a standalone pool, that is one that came while the watch was behind. Under Cluster
/// API, it is one that core has not found yet: core deletes the Node that the Machine names, and skips it otherwise if its connection to the workload
/// cluster is down just then (`isDeleteNodeAllowed` in core's `machine_controller.go`). With a cluster, its Nodes go.
pub fn may_leave_node(owner: &Owner, cluster: &TargetCluster) -> bool {
    let is_known_to_core = owner.request().is_some_and(|request| request.node.is_some());
    cluster.cluster.is_standalone() || (cluster.control_plane_initialized && !cluster.is_deleting && !is_known_to_core)
}

/// Whether a machine of Cluster API has waited long enough for a workload cluster that cannot be used.
pub fn is_over(object: &WindowsMachine, now: Timestamp) -> bool {
    let deleted = object.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    elapsed(deleted, now) >= CORE
}

/// What is reported from the first try on that fails.
pub fn begun() -> Desired {
    Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message("its Node goes first")
}

/// What is reported once the Node was deleted.
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
