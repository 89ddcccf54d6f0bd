//! The pass for a WindowsCluster.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::context::{Context, report_status};
use super::decide::step::{ObservedWindowsCluster, WindowsClusterStep, decide};
use super::{ending, linux_side, report};
use crate::api::capi;
use crate::api::cluster::{ClusterInitialization, FINALIZER, FailureDomain, WindowsCluster, WindowsClusterStatus};
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::components::ComponentsMode;
use crate::api::condition::Desired;
use crate::domain::owner::TargetCluster;
use crate::engine::caches::Caches;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::owners::cluster_now;
use crate::kube_api::error::ApiError;

pub async fn reconcile(object: Arc<WindowsCluster>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    let namespace = object.namespace().unwrap_or_default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let is_owned = capi::owner(object.metadata.owner_references.as_ref(), capi::GROUP, "Cluster").is_some();
    let is_ours = is_owned || object.spec.cluster.is_some();
    if !deleting && (!is_ours || object.annotations().contains_key(capi::MANAGED_BY_ANNOTATION)) {
        return Ok(Outcome::done());
    }
    // A WindowsCluster without owner: it is being deleted, and its Cluster was deleted.
    let name = ClusterRef::of_windows_cluster(object).unwrap_or_else(|| ClusterRef::cluster_api(&namespace, ""));
    let cluster = target(ctx, object, &name).await?;
    let reach = |name: &str| ctx.hypervisors.reach(&namespace, name);
    let machines = machines(&ctx.caches, &name);
    let hypervisors = ctx.caches.hypervisors.names(&namespace);
    let decision = decide(&ObservedWindowsCluster { object, cluster: cluster.as_ref(), machines, hypervisors, reach: &reach });
    match decision.step {
        WindowsClusterStep::Ignore => Ok(Outcome::done()),
        WindowsClusterStep::Wait => report_status(ctx, object, object.status.clone().unwrap_or_default(), &decision.conditions, None).await,
        WindowsClusterStep::Adopt => {
            ctx.management.add_finalizer(object, FINALIZER).await?;
            Ok(Outcome::done())
        }
        WindowsClusterStep::Reconcile(domains) => {
            reconcile_normal(ctx, object, cluster.as_ref(), domains, decision.conditions, decision.requeue_after).await
        }
        WindowsClusterStep::TakeAway => ending::take_away(ctx, object, &name, cluster.as_ref()).await,
        WindowsClusterStep::LeaveBehind(why) => ending::leave_behind(ctx, object, &name, cluster.as_ref(), &why).await,
        WindowsClusterStep::Release => {
            ctx.management.remove_finalizer(object, FINALIZER).await?;
            Ok(Outcome::done())
        }
    }
}

/// The cluster that the object represents. `None` if its Cluster does not exist.
async fn target(ctx: &Context, object: &WindowsCluster, name: &ClusterRef) -> Result<Option<TargetCluster>, ApiError> {
    let ClusterSource::ClusterApi(cluster) = &name.source else { return Ok(Some(TargetCluster::standalone(name.clone(), None, Some(object)))) };
    let found = match object.metadata.deletion_timestamp {
        // Removed objects of the workload cluster cannot be restored, so a cache is not enough to decide whether the Cluster is paused.
        Some(_) => cluster_now(&ctx.management, &name.namespace, cluster).await?.map(Arc::new),
        None => ctx.caches.clusters.get(&name.namespace, cluster),
    };
    Ok(found.map(|cluster| TargetCluster::of_cluster(&cluster, Some(object))))
}

/// The number of WindowsMachines of a cluster, including unreadable ones.
fn machines(caches: &Caches, cluster: &ClusterRef) -> usize {
    caches.windows_machines.count(&cluster.namespace, |machine| ClusterRef::of(machine).as_ref() == Some(cluster))
}

/// Reconciles the components, and reports the result.
async fn reconcile_normal(
    ctx: &Context,
    object: &WindowsCluster,
    cluster: Option<&TargetCluster>,
    domains: Vec<FailureDomain>,
    mut conditions: Vec<Desired>,
    requeue_after: Option<Duration>,
) -> Result<Outcome, ReconcileError> {
    let mut next: WindowsClusterStatus = object.status.clone().unwrap_or_default();
    next.initialization = Some(ClusterInitialization { provisioned: Some(true) });
    next.failure_domains = domains;
    // A deleted Cluster has no workload cluster to reach; its machines are deleted too.
    let Some(cluster) = cluster else { return report_status(ctx, object, next, &conditions, requeue_after).await };
    let asked = object.spec.components.as_ref().filter(|components| components.mode != ComponentsMode::Off);
    let seen = match asked {
        Some(components) => Some(linux_side::reconcile(ctx, object, cluster, components).await?),
        None => linux_side::teardown(ctx, object, cluster).await?,
    };
    let requeue_after = requeue_after.into_iter().chain(seen.as_ref().map(|seen| seen.requeue_after)).min();
    // The last known state stays while the cluster cannot be read.
    let is_unread = seen.as_ref().is_some_and(|seen| seen.status.is_none());
    next.components = seen.as_ref().and_then(|seen| seen.status.clone().or(next.components));
    conditions.extend(seen.into_iter().flat_map(|seen| seen.conditions));
    report::drop_conditions(&mut next, &conditions, asked, is_unread);
    report_status(ctx, object, next, &conditions, requeue_after).await
}

#[cfg(test)]
pub mod tests;
