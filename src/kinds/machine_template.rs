//! WindowsMachineTemplate: reports the capacity of its machines, so that cluster-autoscaler can scale from zero.

use std::sync::Arc;

use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::{TemplateNodeInfo, WindowsMachineTemplate, WindowsMachineTemplateStatus};
use crate::bootstrap::render::reserves::capacity;
use crate::domain::pod_network::pods_per_node;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::triggers::{Triggers, all_of, concerned, namespace};
use crate::engine::watch::Selection;

const MANAGER: &str = "capw-windowsmachinetemplate";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    /// Selects our objects: the cache has the templates of all processes, since pools may refer to any template.
    pub selection: Selection,
}

pub async fn reconcile(object: Arc<WindowsMachineTemplate>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let object = &*object;
    if object.metadata.deletion_timestamp.is_some() || !ctx.selection.selects(&object.metadata) {
        return Ok(Outcome::done());
    }
    let (machine, cluster) = (&object.spec.template.spec, ClusterRef::of_template(&object.metadata));
    let pods_per_node = ctx.caches.pods_per_node(cluster.as_ref());
    let next = WindowsMachineTemplateStatus {
        capacity: capacity(machine, &WindowsBootstrapConfigSpec::default(), pods_per_node),
        node_info: Some(TemplateNodeInfo { architecture: "amd64".into(), operating_system: "windows".into() }),
    };
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

/// The number of pods that get an address on a node becomes known late.
pub fn triggers(caches: &Arc<Caches>) -> Triggers<WindowsMachineTemplate> {
    vec![concerned(
        caches,
        &caches.windows_clusters,
        |c| format!("{:?}", pods_per_node(c)),
        |caches, c| all_of(&caches.machine_templates, &namespace(c)),
    )]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube_api::mock::step;
    use crate::testing::{holding, read, shared};

    const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachinetemplates/t/status";

    #[tokio::test]
    async fn only_templates_that_the_watch_filter_selects_are_reported_on() {
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineTemplate",
            "metadata": {"name": "t", "namespace": "lab", "uid": "t", "resourceVersion": "1", "labels": {"cluster.x-k8s.io/watch-filter": "a"}},
            "spec": {"template": {"spec": {"image": "w", "cpus": 8, "systemDisk": "100Gi"}}}});
        let (shared, script) = shared(Caches::empty(), 1, vec![step(STATUS, object.clone())]);
        for filter in ["a", "b"] {
            let selection = Selection { watch_filter: Some(filter.into()), ..Selection::default() };
            reconcile(Arc::new(read(object.clone())), Context { management: shared.management.clone(), caches: shared.caches.clone(), selection })
                .await
                .unwrap();
        }
        let capacity = &script.seen()[0].body["status"]["capacity"];
        assert_eq!(*capacity, json!({"cpu": "8", "memory": "8Gi", "pods": "30", "ephemeral-storage": "100Gi"}));
    }

    #[tokio::test]
    async fn no_more_pods_are_told_than_have_an_address() {
        let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"});
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineTemplate",
            "metadata": {"name": "t", "namespace": "lab", "uid": "t", "resourceVersion": "1", "ownerReferences": [owner]},
            "spec": {"template": {"spec": {"image": "w", "cpus": 8, "memory": "64Gi"}}}});
        let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsCluster", "name": "w1"}}});
        for (pods, expected) in [(json!(null), "110"), (json!(60), "60")] {
            let windows_cluster = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
                "metadata": {"name": "w1", "namespace": "lab"}, "spec": {},
                "status": {"components": {"network": {"name": "Calico", "role": "Ask", "podsPerNode": pods}}}});
            let caches = Caches { clusters: holding(vec![cluster.clone()]), windows_clusters: holding(vec![windows_cluster]), ..Caches::empty() };
            let (shared, script) = shared(caches, 1, vec![step(STATUS, object.clone())]);
            let ctx = Context { management: shared.management.clone(), caches: shared.caches.clone(), selection: Selection::default() };
            reconcile(Arc::new(read(object.clone())), ctx).await.unwrap();
            assert_eq!(script.seen()[0].body["status"]["capacity"]["pods"], expected);
        }
    }
}
