//! The end of a WindowsCluster: when what was brought to its workload cluster is taken away, and when it stays there
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

/// So long it is tried to take away what was brought: an API server that restarts is back by then. `status.components.removingSince` says it too.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two attempts.
const RETRY: Duration = Duration::from_secs(10);

/// What becomes of what was brought, when no machine needs it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing has to be removed.
    Release,
    TakeAway,
    /// It stays, for this reason.
    LeaveBehind(String),
}

/// Whether a WindowsCluster goes, or its Cluster. A Cluster that is not there any more takes its WindowsCluster with it.
pub fn is_ending(object: &WindowsCluster, cluster: Option<&TargetCluster>) -> bool {
    object.metadata.deletion_timestamp.is_some() || is_going(cluster)
}

/// Whether the Cluster goes, or is gone.
fn is_going(cluster: Option<&TargetCluster>) -> bool {
    cluster.is_none_or(|cluster| cluster.is_deleting)
}

/// Whether a WindowsCluster still has something to remove from the workload cluster, for which it needs the kubeconfig. It lets go after two minutes.
pub fn needs_kubeconfig(object: &WindowsCluster, cluster: Option<&TargetCluster>) -> bool {
    has_finalizer(&object.metadata, FINALIZER) && is_ending(object, cluster)
}

/// How `object` ends, which [`is_ending`].
pub(super) fn end(object: &WindowsCluster, cluster: Option<&TargetCluster>) -> End {
    // A workload cluster that goes needs no cleaning.
    if cluster.is_some_and(|cluster| cluster.is_deleting && !cluster.outlives_cluster) || is_left_behind(object) {
        return End::Release;
    }
    match object.components_mode() {
        // After a move the status does not say what is there.
        ComponentsMode::Auto => End::TakeAway,
        _ if !may_be_there(object) => End::Release,
        ComponentsMode::Off => End::TakeAway,
        ComponentsMode::Report => End::LeaveBehind("spec.components.mode is Report".to_owned()),
    }
}

/// Whether it was said already that something stays.
fn is_left_behind(object: &WindowsCluster) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::ComponentsReady).is_some_and(|found| found.reason == Reason::LeftBehind)
}

/// What follows from an attempt to take it away that failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Unremoved {
    /// It is tried again after that time, and was tried since then.
    TryAgain { since: Timestamp, condition: Desired, after: Duration },
    /// It stays, for this reason.
    LeaveBehind(String),
}

/// `fault`: why the workload cluster cannot be used, if a person has to fix that.
pub fn unremoved(object: &WindowsCluster, cluster: Option<&TargetCluster>, fault: Option<Fault>, error: &str, now: Timestamp) -> Unremoved {
    let known = object.status.as_ref().and_then(|status| status.components.as_ref()?.removing_since.as_ref());
    let since = known.map_or_else(|| whole_second(now), |since| since.0);
    // No control plane provider writes it again for a Cluster that goes.
    let is_lost = fault == Some(Fault::KubeconfigMissing) && is_going(cluster);
    if is_lost || seconds(since, now).unsigned_abs() >= LIMIT.as_secs() {
        return Unremoved::LeaveBehind(error.to_owned());
    }
    let (condition, _) = not_removed(fault.map_or(Reason::NotRemoved, Fault::reason), error);
    Unremoved::TryAgain { since, condition, after: RETRY }
}

/// What stays, where, why, and how to remove it. The Cluster of `name` may be gone.
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

/// `RuntimeClass windows-2022` as kubectl takes it.
fn argument(object: &str) -> String {
    object.split_once(' ').map_or_else(String::new, |(kind, name)| format!("{}/{name}", kind.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests;
