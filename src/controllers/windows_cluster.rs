//! WindowsCluster: ready at once; reports which hypervisors its machines may use. The decision is in [`crate::lifecycle::windows_cluster`].

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::hypervisor::Hypervisors;
use super::runtime::caches::Caches;
use super::runtime::management::Management;
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::triggers::{Triggers, all_of, cluster_facts, concerned, hypervisor_facts, named, namespace};
use crate::api::capi;
use crate::api::cluster::{ClusterInitialization, WindowsCluster, WindowsClusterStatus};
use crate::lifecycle::conditions::{conditions, observed};
use crate::lifecycle::windows_cluster::{ObservedWindowsCluster, decide};

const MANAGER: &str = "capw-windowscluster";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub hypervisors: Hypervisors,
}

pub fn triggers(caches: &Arc<Caches>) -> Triggers<WindowsCluster> {
    vec![
        concerned(caches, &caches.clusters, cluster_facts, |_, cluster| {
            let named: Vec<ObjectRef<WindowsCluster>> = named(cluster.spec.infrastructure_ref.as_ref(), "WindowsCluster", cluster);
            named
        }),
        concerned(caches, &caches.hypervisors, hypervisor_facts, |caches, hypervisor| all_of(&caches.windows_clusters, &namespace(hypervisor))),
    ]
}

pub async fn reconcile(object: Arc<WindowsCluster>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let object = &*object;
    let namespace = object.namespace().unwrap_or_default();
    let owner = object.owner_references().iter().find(|o| o.kind == "Cluster" && o.api_version.starts_with(capi::GROUP)).map(|o| o.name.clone());
    let managed_elsewhere = object.annotations().contains_key(capi::MANAGED_BY_ANNOTATION);
    let Some(owner) = owner.filter(|_| !managed_elsewhere && object.metadata.deletion_timestamp.is_none()) else {
        return Ok(Outcome::done());
    };
    // One that is not there may be paused.
    let Some(cluster) = ctx.caches.clusters.get(&namespace, &owner) else { return Ok(Outcome::done()) };
    let reach = |name: &str| ctx.hypervisors.reach(&namespace, name);
    let hypervisors = ctx.caches.hypervisors.names(&namespace);
    let decision = decide(&ObservedWindowsCluster { object, cluster: Some(&cluster), hypervisors, reach: &reach });
    let mut next: WindowsClusterStatus = object.status.clone().unwrap_or_default();
    if let Some(domains) = decision.step {
        next.initialization = Some(ClusterInitialization { provisioned: Some(true) });
        next.failure_domains = domains;
    }
    next.conditions = conditions(&next.conditions, &decision.conditions, object.metadata.generation, ctx.management.now());
    next.observed_generation = observed(&next.conditions, object.metadata.generation, next.observed_generation);
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::mock::step;
    use crate::controllers::testing::{holding, read, shared};

    const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters/c1/status";

    #[tokio::test]
    async fn it_is_ready_with_the_hypervisors_of_its_namespace_as_failure_domains() {
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
            "metadata": {"name": "c1", "namespace": "lab", "uid": "w", "resourceVersion": "1",
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]},
            "spec": {}});
        let hypervisor = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": "h1", "namespace": "lab"}, "spec": {}});
        let cluster =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
        let caches = Caches { hypervisors: holding(vec![hypervisor]), clusters: holding(vec![cluster]), ..Caches::empty() };
        let (shared, script) = shared(caches, 1, vec![step(STATUS, object.clone())]);
        reconcile(Arc::new(read(object)), shared.windows_cluster()).await.unwrap();
        let status = &script.seen()[0].body["status"];
        assert_eq!((&status["initialization"]["provisioned"], &status["failureDomains"][0]["name"]), (&json!(true), &json!("h1")));
    }
}
