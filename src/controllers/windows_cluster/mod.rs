//! WindowsCluster: ready at once; reports which hypervisors its machines may use, and whether Windows nodes can be on the cluster's network.
//! The decisions are in [`crate::lifecycle::windows_cluster`], [`crate::lifecycle::network`] and [`crate::components`].
//!
//! Writes its finalizer and its status; in the workload cluster, what [`windows_side`] and [`linux_side`] say.

mod ending;
mod linux_side;
mod probes;
#[cfg(test)]
pub mod server;
mod triggers;
mod windows_pods;
mod windows_side;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

pub use self::triggers::triggers;
use super::hypervisor::Hypervisors;
use super::runtime::caches::Caches;
use super::runtime::management::Management;
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::owners::cluster_now;
use super::runtime::workload_clusters::WorkloadClusters;
use crate::api::capi;
use crate::api::cluster::{ClusterInitialization, FINALIZER, FailureDomain, WindowsCluster, WindowsClusterStatus};
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::components::{ComponentsMode, LinuxSideMode};
use crate::api::condition::{ConditionType, Desired};
use crate::cluster::ApiError;
use crate::lifecycle::conditions::{conditions, observed};
use crate::lifecycle::owner::TargetCluster;
use crate::lifecycle::windows_cluster::{ObservedWindowsCluster, WindowsClusterStep, decide};

const MANAGER: &str = "capw-windowscluster";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    /// CAPW's own, if it is known.
    pub image: Option<String>,
}

pub async fn reconcile(object: Arc<WindowsCluster>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    let namespace = object.namespace().unwrap_or_default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let is_owned = capi::owner(object.metadata.owner_references.as_ref(), capi::GROUP, "Cluster").is_some();
    let is_ours = is_owned || object.spec.cluster.is_some();
    if !deleting && (!is_ours || object.annotations().contains_key(capi::MANAGED_BY_ANNOTATION)) {
        return Ok(Outcome::done());
    }
    // One that lost its owner: it goes, and so has its Cluster.
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

/// The cluster that the object stands for. `None`: its Cluster is not there.
async fn target(ctx: &Context, object: &WindowsCluster, name: &ClusterRef) -> Result<Option<TargetCluster>, ApiError> {
    let ClusterSource::ClusterApi(cluster) = &name.source else { return Ok(Some(TargetCluster::standalone(name.clone(), None, Some(object)))) };
    let found = match object.metadata.deletion_timestamp {
        // What is removed in the workload cluster does not come back: whether the Cluster is paused is not a matter of a cache.
        Some(_) => cluster_now(&ctx.management, &name.namespace, cluster).await?.map(Arc::new),
        None => ctx.caches.clusters.get(&name.namespace, cluster),
    };
    Ok(found.map(|cluster| TargetCluster::of_cluster(&cluster, Some(object))))
}

/// How many WindowsMachines a cluster has, also such as cannot be read.
fn machines(caches: &Caches, cluster: &ClusterRef) -> usize {
    caches.windows_machines.count(&cluster.namespace, |machine| ClusterRef::of(machine).as_ref() == Some(cluster))
}

/// Does what is asked for, and reports it.
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
    // One that is gone leads nowhere; its machines go too.
    let Some(cluster) = cluster else { return report_status(ctx, object, next, &conditions, requeue_after).await };
    let asked = object.spec.components.as_ref().filter(|components| components.mode != ComponentsMode::Off);
    let seen = match asked {
        Some(components) => Some(linux_side::reconcile(ctx, object, cluster, components).await?),
        None => linux_side::teardown(ctx, object, cluster).await?,
    };
    let requeue_after = requeue_after.into_iter().chain(seen.as_ref().map(|seen| seen.requeue_after)).min();
    // What was known stays while the cluster cannot be read.
    let is_unread = seen.as_ref().is_some_and(|seen| seen.status.is_none());
    next.components = seen.as_ref().and_then(|seen| seen.status.clone().or(next.components));
    conditions.extend(seen.into_iter().flat_map(|seen| seen.conditions));
    let is_changed = asked.is_some_and(|components| components.linux_side == LinuxSideMode::Change);
    let is_brought = asked.is_some_and(|components| components.mode == ComponentsMode::Auto);
    for (is_said, type_) in [
        (asked.is_some(), ConditionType::NetworkCompatible),
        (asked.is_some(), ConditionType::SchedulingClean),
        (is_changed, ConditionType::LinuxSideReady),
        (is_brought || is_unread, ConditionType::ComponentsReady),
    ] {
        let is_said = is_said || conditions.iter().any(|desired| desired.type_ == type_);
        next.conditions.retain(|condition| is_said || condition.type_ != type_.as_str());
    }
    report_status(ctx, object, next, &conditions, requeue_after).await
}

/// Reports the status `next` with these conditions.
async fn report_status(
    ctx: &Context,
    object: &WindowsCluster,
    mut next: WindowsClusterStatus,
    said: &[Desired],
    requeue_after: Option<Duration>,
) -> Result<Outcome, ReconcileError> {
    next.conditions = conditions(&next.conditions, said, object.metadata.generation, ctx.management.now());
    next.observed_generation = observed(&next.conditions, object.metadata.generation, next.observed_generation);
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(requeue_after))
}

#[cfg(test)]
pub mod tests {
    pub mod at_rest;

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::mock::{refuse, step};
    use crate::controllers::testing::{holding, holding_unreadable, read, shared};
    use crate::lifecycle::network::RECHECK_SOON;

    const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters/c1/status";

    fn windows_cluster(spec: Value, status: Value) -> Value {
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
            "metadata": {"name": "c1", "namespace": "lab", "uid": "w", "resourceVersion": "1",
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]},
            "spec": spec, "status": status})
    }

    /// The network of a cluster is looked at once there is a control plane; what was said of it goes when nobody asks any more.
    #[tokio::test]
    async fn the_network_waits_for_the_control_plane_and_is_forgotten_when_it_is_not_asked_for() {
        let seen = json!({"components": {"network": {"name": "flannel/vxlan"}}, "conditions": [{"type": "NetworkCompatible", "status": "True",
            "reason": "NetworkUsable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        for (spec, found) in [
            (json!({"components": {}}), Some("WaitingForControlPlaneInitialized")),
            (json!({"components": {"mode": "Off"}}), None),
            (json!({}), None),
        ] {
            let object = windows_cluster(spec, seen.clone());
            let cluster =
                json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
            let hypervisor = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor", "metadata": {"name": "h1", "namespace": "lab"}, "spec": {}});
            let caches = Caches { hypervisors: holding(vec![hypervisor]), clusters: holding(vec![cluster]), ..Caches::empty() };
            let (shared, script) = shared(caches, 1, vec![step(STATUS, object.clone())]);
            let outcome = reconcile(Arc::new(read(object)), shared.windows_cluster()).await.unwrap();
            let status = &script.seen()[0].body["status"];
            let conditions = status["conditions"].as_array().unwrap();
            let reason =
                conditions.iter().find(|condition| condition["type"] == "NetworkCompatible").map(|condition| condition["reason"].as_str().unwrap());
            assert_eq!((reason, status["components"].is_object()), (found, found.is_some()), "{status:#}");
            assert_eq!(outcome, found.map_or_else(Outcome::done, |_| Outcome::requeue_after(RECHECK_SOON)));
        }
    }

    /// Without Cluster API it names its cluster; the Secret with the kubeconfig may come later.
    #[tokio::test]
    async fn it_looks_at_the_cluster_that_it_names() {
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
            "metadata": {"name": "w1", "namespace": "lab", "uid": "w", "resourceVersion": "1"},
            "spec": {"cluster": {"kubeconfigSecretRef": {"name": "there"}}, "components": {}}});
        let secret = refuse("GET /api/v1/namespaces/lab/secrets/there", 404, "NotFound");
        let said = step(&STATUS.replace("c1", "w1"), object.clone());
        let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
        let hypervisor = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": "h1", "namespace": "lab"}, "spec": {}});
        let caches = Caches { hypervisors: holding(vec![hypervisor]), ..Caches::empty() };
        let (shared, script) = shared(caches, 1, vec![secret, said, event]);
        let outcome = reconcile(Arc::new(read(object)), shared.windows_cluster()).await.unwrap();
        let seen = script.seen();
        let conditions = seen[1].body["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == "NetworkCompatible").unwrap();
        assert_eq!((&found["status"], &found["reason"]), (&json!("Unknown"), &json!("KubeconfigMissing")));
        assert_eq!(outcome, Outcome::requeue_after(RECHECK_SOON));
    }

    #[tokio::test]
    async fn it_is_ready_with_the_hypervisors_of_its_namespace_as_failure_domains() {
        let object = windows_cluster(json!({}), json!({}));
        let hypervisor = |name: &str, spec: serde_json::Value| {
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
                "metadata": {"name": name, "namespace": "lab"}, "spec": spec})
        };
        // One that cannot be read is there, too.
        let hypervisors = holding_unreadable(vec![hypervisor("h2", json!(5)), hypervisor("h1", json!({}))]);
        let cluster =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
        let caches = Caches { hypervisors, clusters: holding(vec![cluster]), ..Caches::empty() };
        let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
        let (shared, script) = shared(caches, 1, vec![step(STATUS, object.clone()), event]);
        reconcile(Arc::new(read(object)), shared.windows_cluster()).await.unwrap();
        let status = &script.seen()[0].body["status"];
        let domains = status["failureDomains"].as_array().unwrap().iter().map(|domain| domain["name"].as_str().unwrap());
        assert_eq!((&status["initialization"]["provisioned"], domains.collect::<Vec<_>>()), (&json!(true), vec!["h1", "h2"]));
    }
}
