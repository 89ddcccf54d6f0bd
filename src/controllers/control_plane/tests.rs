use serde_json::{Value, json};

use super::*;
use crate::cluster::mock::{refuse, step};
use crate::controllers::testing::{holding, read, shared};

const STATUS: &str = "PATCH /apis/controlplane.cluster.x-k8s.io/v1alpha1/namespaces/lab/externalcontrolplanes/c1/status";

fn object(owners: Value) -> Value {
    json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "ExternalControlPlane",
        "metadata": {"name": "c1", "namespace": "lab", "uid": "e", "resourceVersion": "1", "finalizers": [FINALIZER], "ownerReferences": owners}, "spec": {}})
}

#[tokio::test]
async fn nothing_is_read_before_there_is_an_owner() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let outcome = reconcile(Arc::new(read(object(json!([])))), shared.control_plane()).await.unwrap();
    assert_eq!(outcome, Outcome::done());
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_is_reported() {
    let owned = object(json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "u"}]));
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
    let caches = Caches { clusters: holding(vec![cluster]), ..Caches::empty() };
    let exchanges = vec![
        refuse("GET /api/v1/namespaces/lab/secrets/c1-external-kubeconfig", 404, "NotFound"),
        step(STATUS, owned.clone()),
        step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({})),
    ];
    let (shared, script) = shared(caches, 1, exchanges);
    reconcile(Arc::new(read(owned)), shared.control_plane()).await.unwrap();
    let conditions = &script.seen()[1].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Available" && c["reason"] == "KubeconfigMissing"), "{conditions}");
}
