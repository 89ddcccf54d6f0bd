//! Tears down the Node of a machine that is being deleted, if it belongs to a standalone pool. The decisions are in
//! [`crate::lifecycle::node::teardown`] and [`crate::lifecycle::node::drain`].

use kube::ResourceExt;

use super::{Context, drain};
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::cluster::workload::WorkloadError;
use crate::controllers::runtime::outcome::ReconcileError;
use crate::controllers::runtime::workload_clusters::fault;
use crate::lifecycle::Decision;
use crate::lifecycle::identity::NodeIdentity;
use crate::lifecycle::node::teardown::{self, TeardownStep};

/// One step. `None`: no Node is in the way of the end of the VM. Else what to report, and when to look again; a change of the Node
/// triggers an earlier pass.
pub async fn tear_down(ctx: &Context, object: &WindowsMachine) -> Result<Option<Decision<()>>, ReconcileError> {
    let Some(cluster) = ClusterRef::standalone(&object.metadata) else { return Ok(None) };
    let error = match step(ctx, object, &cluster).await {
        Ok(waiting) => return Ok(waiting),
        Err(error) => error,
    };
    if !matches!(error, WorkloadError::KubeconfigMissing { .. }) {
        ctx.clusters.doubt(&cluster, &error).await;
    }
    match teardown::unusable(fault(&error), &error.to_string(), drain::is_over(ctx, object)) {
        TeardownStep::Wait(waiting) => Ok(Some(waiting)),
        TeardownStep::Finished { left_behind } => {
            tracing::warn!(%cluster, "the Node is left behind, {}: {error}", left_behind.unwrap_or_default());
            Ok(None)
        }
        TeardownStep::BackOff | TeardownStep::Drain(_) => Err(error.into()),
    }
}

async fn step(ctx: &Context, object: &WindowsMachine, cluster: &ClusterRef) -> Result<Option<Decision<()>>, WorkloadError> {
    let workload = ctx.clusters.get_with_nodes(cluster).await?;
    let listed = ctx.clusters.nodes().are_known(cluster);
    let node = NodeIdentity::of(object).and_then(|machine| ctx.clusters.nodes().of(cluster, &machine));
    match teardown::decide(listed, node.as_deref()) {
        TeardownStep::Drain(node) => {
            if let Some(decision) = drain::drain(ctx, object, &workload, node).await? {
                return Ok(Some(decision));
            }
            let provider_id = node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).unwrap_or_default();
            workload.delete_node(&node.name_any(), provider_id).await?;
            Ok(Some(teardown::deleted(&node.name_any())))
        }
        TeardownStep::Wait(waiting) => Ok(Some(waiting)),
        TeardownStep::Finished { .. } | TeardownStep::BackOff => Ok(None),
    }
}

/// When nothing is left of the VM: deletes a Node that came while the watch was behind.
pub async fn delete_late_node(ctx: &Context, object: &WindowsMachine) -> Result<(), ReconcileError> {
    let (Some(cluster), Some(machine)) = (ClusterRef::standalone(&object.metadata), NodeIdentity::of(object)) else { return Ok(()) };
    let delete = async || {
        let workload = ctx.clusters.get_with_nodes(&cluster).await?;
        workload.delete_node(machine.name.as_str(), &machine.provider_id.to_string()).await
    };
    match delete().await {
        Err(WorkloadError::KubeconfigMissing { .. } | WorkloadError::OwnClusterRefused { .. }) => Ok(()),
        Err(error) if drain::is_over(ctx, object) => {
            tracing::warn!(%cluster, "whether the Node is gone is not known: {error}");
            Ok(())
        }
        other => Ok(other?),
    }
}
