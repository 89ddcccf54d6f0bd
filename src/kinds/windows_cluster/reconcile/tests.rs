pub mod at_rest;

use serde_json::{Value, json};

use super::*;
use crate::kinds::windows_cluster::decide::network::RECHECK_SOON;
use crate::kube_api::mock::{refuse, step};
use crate::testing::{holding, holding_unreadable, read, shared};

const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters/c1/status";

fn windows_cluster(spec: Value, status: Value) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "c1", "namespace": "lab", "uid": "w", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]},
        "spec": spec, "status": status})
}

/// The network of a cluster is read once there is a control plane; the report is removed when it is no longer requested.
#[tokio::test]
async fn the_network_waits_for_the_control_plane_and_is_forgotten_when_it_is_not_asked_for() {
    let seen = json!({"components": {"network": {"name": "flannel/vxlan"}}, "conditions": [{"type": "NetworkCompatible", "status": "True",
        "reason": "NetworkUsable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    for (spec, found) in
        [(json!({"components": {}}), Some("WaitingForControlPlaneInitialized")), (json!({"components": {"mode": "Off"}}), None), (json!({}), None)]
    {
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

/// Without Cluster API, the WindowsCluster names its cluster; the Secret with the kubeconfig may be created later.
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
    // An unreadable hypervisor exists, too.
    let hypervisors = holding_unreadable(vec![hypervisor("h2", json!(5)), hypervisor("h1", json!({}))]);
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
    let caches = Caches { hypervisors, clusters: holding(vec![cluster]), ..Caches::empty() };
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (shared, script) = shared(caches, 1, vec![step(STATUS, object.clone()), event]);
    reconcile(Arc::new(read(object)), shared.windows_cluster()).await.unwrap();
    let status = &script.seen()[0].body["status"];
    let domains = status["failureDomains"].as_array().unwrap().iter().map(|domain| domain["name"].as_str().unwrap());
    assert_eq!((&status["initialization"]["provisioned"], domains.collect::<Vec<_>>()), (&json!(true), vec!["h1", "h2"]));
}
