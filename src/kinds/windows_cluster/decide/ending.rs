//! The end of a WindowsCluster: when the objects that CAPW brought to its workload cluster are removed, and when they are left behind
//! (`docs/pod-network.md#when-the-cluster-goes`).

use std::time::Duration;

use jiff::Timestamp;

use super::windows_side::{may_be_there, not_removed};
use crate::api::cluster::{FINALIZER, WindowsCluster};
use crate::api::cluster_ref::ClusterRef;
use crate::api::components::ComponentsMode;
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::components::removed;
use crate::domain::age::seconds;
use crate::domain::conditions::whole_second;
use crate::domain::fault::Fault;
use crate::domain::gate::has_finalizer;
use crate::domain::owner::TargetCluster;

/// How long the removal is retried: an API server that restarts is back by then. `status.components.removingSince` documents this limit too.
const LIMIT: Duration = Duration::from_secs(120);
/// The interval between two attempts.
const RETRY: Duration = Duration::from_secs(10);

/// The fate of the objects that CAPW brought, when no machine needs them any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing has to be removed.
    Release,
    TakeAway,
    /// The objects are left behind, for this reason.
    LeaveBehind(String),
}

/// Whether a WindowsCluster or its Cluster is being deleted. If the Cluster does not exist any more, its WindowsCluster ends too.
pub fn is_ending(object: &WindowsCluster, cluster: Option<&TargetCluster>) -> bool {
    object.metadata.deletion_timestamp.is_some() || is_going(cluster)
}

/// Whether the Cluster is being deleted or was deleted.
fn is_going(cluster: Option<&TargetCluster>) -> bool {
    cluster.is_none_or(|cluster| cluster.is_deleting)
}

/// Whether a WindowsCluster still needs the kubeconfig to remove objects from the workload cluster. It gives up after two minutes.
pub fn needs_kubeconfig(object: &WindowsCluster, cluster: Option<&TargetCluster>) -> bool {
    has_finalizer(&object.metadata, FINALIZER) && is_ending(object, cluster)
}

/// Decides the end of `object`, for which [`is_ending`] is true.
pub(super) fn end(object: &WindowsCluster, cluster: Option<&TargetCluster>) -> End {
    // A workload cluster that is deleted needs no cleanup.
    if cluster.is_some_and(|cluster| cluster.is_deleting && !cluster.outlives_cluster) || is_left_behind(object) {
        return End::Release;
    }
    match object.components_mode() {
        // After a move, the status does not list the existing objects.
        ComponentsMode::Auto => End::TakeAway,
        _ if !may_be_there(object) => End::Release,
        ComponentsMode::Off => End::TakeAway,
        ComponentsMode::Report => End::LeaveBehind("spec.components.mode is Report".to_owned()),
    }
}

/// Whether the status already reports that objects are left behind.
fn is_left_behind(object: &WindowsCluster) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::ComponentsReady).is_some_and(|found| found.reason == Reason::LeftBehind)
}

/// The result of a failed attempt to remove the objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Unremoved {
    /// The removal is tried again after `after`, and has been tried since `since`.
    TryAgain { since: Timestamp, condition: Desired, after: Duration },
    /// The objects are left behind, for this reason.
    LeaveBehind(String),
}

/// Decides after a failed attempt. `fault`: why the workload cluster cannot be used, if a person has to fix that.
pub fn unremoved(object: &WindowsCluster, cluster: Option<&TargetCluster>, fault: Option<Fault>, error: &str, now: Timestamp) -> Unremoved {
    let known = object.status.as_ref().and_then(|status| status.components.as_ref()?.removing_since.as_ref());
    let since = known.map_or_else(|| whole_second(now), |since| since.0);
    // No control plane provider recreates the kubeconfig for a Cluster that is being deleted.
    let is_lost = fault == Some(Fault::KubeconfigMissing) && is_going(cluster);
    if is_lost || seconds(since, now).unsigned_abs() >= LIMIT.as_secs() {
        return Unremoved::LeaveBehind(error.to_owned());
    }
    let (condition, _) = not_removed(fault.map_or(Reason::NotRemoved, Fault::reason), error);
    Unremoved::TryAgain { since, condition, after: RETRY }
}

/// Reports which objects are left behind, where, why, and how to remove them. The Cluster of `name` may be deleted.
pub fn left_behind(object: &WindowsCluster, name: &ClusterRef, cluster: Option<&TargetCluster>, why: &str) -> Desired {
    let endpoint = cluster.and_then(|cluster| cluster.endpoint.as_ref()).map(|endpoint| format!(" (https://{}:{})", endpoint.host, endpoint.port));
    let for_pods = object.objects();
    let network = removed(&[]).into_iter().filter(|_| !object.parts().is_empty() || for_pods.is_empty()).map(|(_, of)| of.to_string());
    let names: Vec<String> = network.chain(for_pods.iter().cloned()).map(|of| argument(&of)).collect();
    let message = format!(
        "what CAPW brought stays in {}{}; `kubectl delete --ignore-not-found {}` removes it there. It was not removed: {why}",
        name.words(),
        endpoint.unwrap_or_default(),
        names.join(" ")
    );
    Desired::no(ConditionType::ComponentsReady, Reason::LeftBehind, message)
}

/// `RuntimeClass windows-2022` as an argument of kubectl.
fn argument(object: &str) -> String {
    object.split_once(' ').map_or_else(String::new, |(kind, name)| format!("{}/{name}", kind.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests;
