//! Tears down the Node of a machine that is being deleted: before its VM, in a standalone pool, and after its VM, if the Node is left.
//! The decisions are in [`crate::domain::node::teardown`] and [`crate::domain::node::drain`].

use jiff::Timestamp;
use kube::ResourceExt;

use super::context::{Context, write};
use super::drain;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::domain::decision::Decision;
use crate::domain::node::teardown::{self, TeardownStep};
use crate::engine::outcome::ReconcileError;
use crate::engine::workload_clusters::fault;
use crate::kube_api::workload::WorkloadError;

/// Takes one step. `None` if no Node blocks the removal of the VM. Otherwise returns what to report, and when to requeue; a change of the Node
/// triggers an earlier pass.
pub async fn tear_down(ctx: &Context, object: &WindowsMachine) -> Result<Option<Decision<()>>, ReconcileError> {
    let Some(cluster) = ClusterRef::standalone(&object.metadata) else {
        note_deletion(ctx, object, ctx.management.now());
        return Ok(None);
    };
    match step(ctx, object, &cluster).await {
        Ok(waiting) => Ok(waiting),
        Err(error) => unusable(ctx, object, &cluster, error, drain::is_over(ctx, object)).await,
    }
}

/// Deletes a leftover Node after the VM is removed. `None` if there is no such Node. Otherwise returns what to report.
pub async fn delete_left_node(ctx: &Context, object: &WindowsMachine) -> Result<Option<Decision<()>>, ReconcileError> {
    let Some(machine) = ctx.caches.node_of(object) else { return Ok(None) };
    let target = ClusterRef::of(&object.metadata).and_then(|cluster| ctx.caches.target_cluster(cluster, None));
    let Some(target) = target.filter(|target| teardown::may_leave_node(&ctx.owners.of_machine(object), target)) else { return Ok(None) };
    let delete = async || {
        let workload = ctx.clusters.get(&target.cluster).await?;
        workload.delete_node(machine.name.as_str(), &machine.provider_id.to_string()).await
    };
    let now = ctx.management.now();
    let is_over = if target.cluster.is_standalone() { drain::is_over(ctx, object) } else { teardown::is_over(note_deletion(ctx, object, now), now) };
    match delete().await {
        Ok(()) => Ok(None),
        Err(error) => unusable(ctx, object, &target.cluster, error, is_over).await,
    }
}

/// Records that the machine is being deleted. Returns when CAPW first observed that.
fn note_deletion(ctx: &Context, object: &WindowsMachine, now: Timestamp) -> Timestamp {
    ctx.deletions.note(&object.uid().unwrap_or_default(), now)
}

/// Handles an error of the workload cluster. `None` if the machine is released, and its Node may be left behind.
async fn unusable(
    ctx: &Context,
    object: &WindowsMachine,
    cluster: &ClusterRef,
    error: WorkloadError,
    is_over: bool,
) -> Result<Option<Decision<()>>, ReconcileError> {
    if error.is_pending() {
        return Err(error.into());
    }
    if !matches!(error, WorkloadError::KubeconfigMissing { .. }) {
        ctx.clusters.note_error(cluster, &error).await;
    }
    match teardown::unusable(fault(&error), &error.to_string(), is_over) {
        TeardownStep::Wait(waiting) => Ok(Some(waiting)),
        TeardownStep::LeaveBehind(why) => {
            tracing::warn!(%cluster, "its Node may be left behind, {why}: {error}");
            Ok(None)
        }
        TeardownStep::BackOff => {
            let is_noted = object.status.as_ref().is_some_and(|status| status.draining_since.is_some());
            if cluster.is_standalone() && !is_noted {
                write(ctx, object, &[teardown::begun()], None, None).await?;
            }
            Err(error.into())
        }
    }
}

/// Takes one step. The Node is read from the API server: the watch may be behind, and a VM that stops takes the pods on its Node with it.
async fn step(ctx: &Context, object: &WindowsMachine, cluster: &ClusterRef) -> Result<Option<Decision<()>>, WorkloadError> {
    let Some(machine) = ctx.caches.node_of(object) else { return Ok(None) };
    let workload = ctx.clusters.get_with_nodes(cluster).await?;
    let Some(node) = workload.node(machine.name.as_str()).await?.filter(|node| machine.is_of(node)) else { return Ok(None) };
    if let Some(decision) = drain::drain(ctx, object, &workload, &node).await? {
        return Ok(Some(decision));
    }
    workload.delete_read_node(&node).await?;
    Ok(Some(teardown::deleted(machine.name.as_str())))
}
