use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::kinds::control_plane::clients::Clients;
use crate::kinds::control_plane::reconcile::*;
use crate::kube_api::mock::{Script, refuse, step};
use crate::kube_api::workload::Workload;
use crate::testing::{groups, holding, holding_unreadable, read, shared};

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

/// The rights take many requests. The pass that finds them all must also publish, so that no later pass repeats the requests.
#[tokio::test]
async fn a_new_kubeconfig_is_asked_and_published_in_one_pass() {
    const SECRETS: &str = "/api/v1/namespaces/lab/secrets";
    let mut owned = object(json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "u"}]));
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
    let secret = json!({"metadata": {"name": "c1-external-kubeconfig", "namespace": "lab"}, "data": {"value": ByteString(b"kubeconfig".to_vec())}});
    let before = owned.clone();
    owned["spec"] = json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}});
    owned["metadata"]["generation"] = json!(2);
    let exchanges = vec![
        step(&format!("GET {SECRETS}/c1-external-kubeconfig"), secret),
        refuse(&format!("GET {SECRETS}/c1-kubeconfig"), 404, "NotFound"),
        step(&format!("POST {SECRETS}"), json!({"metadata": {"name": "c1-kubeconfig", "namespace": "lab"}})),
        step("PATCH /apis/controlplane.cluster.x-k8s.io/v1alpha1/namespaces/lab/externalcontrolplanes/c1", owned.clone()),
        step(STATUS, owned),
    ];
    let review =
        || step("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}));
    let mut asked = vec![step(
        "GET /version",
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
    )];
    asked.extend(rights::NEEDED.iter().map(|_| review()));
    asked.push(step("GET /api/v1/namespaces/kube-system", json!({"metadata": {"name": "kube-system", "uid": "w"}})));
    let (client, _workload) = Script::new(asked);
    let workload = Workload { server: "https://10.0.0.1:6443".into(), ..Workload::of(client) };

    let caches = Caches { clusters: holding(vec![cluster]), ..Caches::empty() };
    let (shared, script) = shared(caches, 1, exchanges);
    let ctx = Context { clients: Arc::new(Clients::of(b"kubeconfig", workload)), ..shared.control_plane() };
    let outcome = reconcile(Arc::new(read(before)), ctx).await.unwrap();
    assert!(outcome != Outcome::now(), "{outcome:?}");
    let status = script.seen()[4].body["status"].clone();
    assert_eq!((&status["clusterUID"], &status["version"], &status["observedGeneration"]), (&json!("w"), &json!("v1.36.3"), &json!(2)), "{status:#}");
}

/// The object is the last one that has the kubeconfig: whatever request fails, it stays until nothing needs the kubeconfig.
#[tokio::test]
async fn it_goes_after_what_was_brought_to_windows_nodes() {
    const CLUSTERS: &str = "GET /apis/cluster.x-k8s.io/v1beta2/namespaces/lab/clusters";
    const WINDOWS_CLUSTERS: &str = "GET /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters";
    const OBJECT: &str = "PATCH /apis/controlplane.cluster.x-k8s.io/v1alpha1/namespaces/lab/externalcontrolplanes/c1";
    let mut leaving = object(json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "u"}]));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let cluster = |paused: bool| {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "c1", "namespace": "lab", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"paused": paused}})
    };
    let windows_cluster = |cluster: &str, ours: bool| {
        let finalizers = if ours { json!([crate::api::cluster::FINALIZER]) } else { json!([]) };
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": {"name": "w1", "namespace": "lab",
            "finalizers": finalizers, "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": cluster, "uid": "u"}]}, "spec": {}})
    };
    let list = |request: &str, kind: &str, items: Vec<Value>| {
        let version = if kind == "ClusterList" { "cluster.x-k8s.io/v1beta2" } else { "infrastructure.cluster.x-k8s.io/v1alpha1" };
        step(request, json!({"apiVersion": version, "kind": kind, "metadata": {}, "items": items}))
    };
    let clusters = |paused: bool| list(CLUSTERS, "ClusterList", vec![cluster(paused)]);
    let windows_clusters = |items: Vec<Value>| list(WINDOWS_CLUSTERS, "WindowsClusterList", items);
    let page = || refuse(WINDOWS_CLUSTERS, 404, "Failed to parse error data");
    let released = || step(OBJECT, leaving.clone());
    let waits = || step(STATUS, leaving.clone());
    let requeued = Ok(Outcome::requeue_after(std::time::Duration::from_secs(5)));
    let unreadable = |cluster: &str, ours: bool| {
        let mut unreadable = windows_cluster(cluster, ours);
        unreadable["spec"] = json!(5);
        unreadable
    };
    for (exchanges, expected) in [
        (vec![clusters(false), windows_clusters(vec![]), released()], Ok(Outcome::done())),
        (vec![clusters(false), windows_clusters(vec![windows_cluster("c1", false), windows_cluster("c2", true)]), released()], Ok(Outcome::done())),
        (vec![clusters(false), windows_clusters(vec![windows_cluster("c1", true)]), waits()], requeued),
        (vec![clusters(false), windows_clusters(vec![unreadable("c1", false), unreadable("c2", true)]), released()], Ok(Outcome::done())),
        (vec![clusters(false), windows_clusters(vec![unreadable("c1", true)]), waits()], requeued),
        // The Cluster was deleted, and the WindowsCluster is deleted with it.
        (vec![list(CLUSTERS, "ClusterList", vec![]), windows_clusters(vec![windows_cluster("c1", true)]), waits()], requeued),
        (vec![clusters(true), windows_clusters(vec![]), waits()], Ok(Outcome::done())),
        // The infrastructure belongs to another provider.
        (vec![clusters(false), page(), groups(&["apps", "controlplane.cluster.x-k8s.io"]), released()], Ok(Outcome::done())),
        // The answer may not come from the API server.
        (vec![clusters(false), page(), groups(&["apps"])], Err("not_served")),
        (vec![clusters(false), page(), refuse("GET /apis", 404, "Failed to parse error data")], Err("not_served")),
        (vec![refuse(CLUSTERS, 503, "ServiceUnavailable")], Err("unreachable")),
        (vec![clusters(false), refuse(WINDOWS_CLUSTERS, 403, "Forbidden")], Err("forbidden")),
        (vec![clusters(false), windows_clusters(vec![]), refuse(OBJECT, 409, "Conflict")], Err("conflict")),
    ] {
        let caches = Caches { clusters: holding(vec![cluster(false)]), ..Caches::empty() };
        let (shared, _script) = shared(caches, 1, exchanges);
        let outcome = reconcile(Arc::new(read(leaving.clone())), shared.control_plane()).await;
        assert_eq!(outcome.map_err(|error| error.label()), expected);
    }

    // No cache has the Cluster, which may exist, and may be paused.
    for exchanges in
        [vec![clusters(true), windows_clusters(vec![]), waits()], vec![list(CLUSTERS, "ClusterList", vec![]), windows_clusters(vec![]), released()]]
    {
        let (shared, _script) = shared(Caches::empty(), 1, exchanges);
        let outcome = reconcile(Arc::new(read(leaving.clone())), shared.control_plane()).await;
        assert_eq!(outcome.map_err(|error| error.label()), Ok(Outcome::done()));
    }

    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "m", "namespace": "lab", "uid": "m", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}}, "spec": 5});
    let caches = Caches { clusters: holding(vec![cluster(false)]), machines: holding_unreadable(vec![machine]), ..Caches::empty() };
    let (there, _script) = shared(caches, 1, vec![waits()]);
    let outcome = reconcile(Arc::new(read(leaving.clone())), there.control_plane()).await;
    assert_eq!(outcome.map_err(|error| error.label()), requeued, "a machine that cannot be read needs it too");
    // The owner references were removed.
    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "infrastructureRef": {"kind": "WindowsMachine", "name": "m"}}});
    leaving["metadata"]["ownerReferences"] = json!([]);
    let mut named = cluster(false);
    named["spec"]["controlPlaneRef"] = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "ExternalControlPlane", "name": "c1"});
    for (labels, cluster) in [(json!({"cluster.x-k8s.io/cluster-name": "c1"}), cluster(false)), (json!({}), named)] {
        leaving["metadata"]["labels"] = labels;
        let caches = Caches { clusters: holding(vec![cluster]), machines: holding(vec![machine.clone()]), ..Caches::empty() };
        let (left, _script) = shared(caches, 1, vec![step(STATUS, leaving.clone())]);
        let outcome = reconcile(Arc::new(read(leaving.clone())), left.control_plane()).await;
        assert_eq!(outcome.map_err(|error| error.label()), requeued, "its cluster has a machine");
    }
}
