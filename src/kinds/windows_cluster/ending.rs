//! The end of a WindowsCluster, or of its Cluster: the objects that CAPW brought to the workload cluster are removed, or reported as left behind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::{Context, report_status};
use super::decide::ending::{Unremoved, left_behind, unremoved};
use super::windows_side;
use crate::api::cluster::{FINALIZER, WindowsCluster};
use crate::api::cluster_ref::ClusterRef;
use crate::domain::owner::TargetCluster;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::fault;

/// Removes the objects that CAPW brought, and then the finalizer. The Cluster of `name` may be deleted.
pub async fn take_away(
    ctx: &Context,
    object: &WindowsCluster,
    name: &ClusterRef,
    cluster: Option<&TargetCluster>,
) -> Result<Outcome, ReconcileError> {
    ctx.clusters.linux_sides().forget(name);
    let removed = async { windows_side::take_away(&*ctx.clusters.get(name).await?, object).await };
    let Err(error) = removed.await else {
        tracing::info!(cluster = %name, "removed everything that was deployed in the workload cluster");
        ctx.management.remove_finalizer(object, FINALIZER).await?;
        return Ok(Outcome::done());
    };
    if error.is_pending() {
        return Err(error.into());
    }
    ctx.clusters.note_error(name, &error).await;
    match unremoved(object, cluster, fault(&error), &error.to_string(), ctx.management.now()) {
        Unremoved::TryAgain { since, condition, after } => {
            let mut next = object.status.clone().unwrap_or_default();
            next.components.get_or_insert_default().removing_since = Some(Time(since));
            report_status(ctx, object, next, &[condition], Some(after.max(error.not_before()))).await
        }
        Unremoved::LeaveBehind(why) => leave_behind(ctx, object, name, cluster, &why).await,
    }
}

/// Reports what is left behind. The next pass removes the finalizer, when the report is stored.
pub async fn leave_behind(
    ctx: &Context,
    object: &WindowsCluster,
    name: &ClusterRef,
    cluster: Option<&TargetCluster>,
    why: &str,
) -> Result<Outcome, ReconcileError> {
    let condition = left_behind(object, name, cluster, why);
    tracing::warn!(cluster = %name, "{}", condition.message);
    report_status(ctx, object, object.status.clone().unwrap_or_default(), &[condition], None).await
}

#[cfg(test)]
mod tests;
