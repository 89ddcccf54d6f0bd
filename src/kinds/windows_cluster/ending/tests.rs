//! A Cluster or a WindowsCluster is deleted: the objects that CAPW brought are removed first, whatever request fails, or are reported as left behind.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::engine::caches::Caches;
use crate::kinds::windows_cluster::ending::*;
use crate::kinds::windows_cluster::reconcile::reconcile;
use crate::kube_api::mock::{Exchange, Recorded, hang, refuse, step};
use crate::testing::server::{Fault, PATIENCE, Server, connect, kubeconfig};
use crate::testing::{holding, holding_unreadable, read, shared_to, with_answers};

const OBJECT: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters/w1";
const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters/w1/status";
const SECRET: &str = "GET /api/v1/namespaces/lab/secrets/c1-kubeconfig";
const CLUSTERS: &str = "GET /apis/cluster.x-k8s.io/v1beta2/namespaces/lab/clusters";
const EVENT: &str = "POST /apis/events.k8s.io/v1/namespaces/lab/events";
const GONE: &str = "2026-01-01T00:00:00Z";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/capw-flannel";
const CLASS: &str = "/apis/node.k8s.io/v1/runtimeclasses/windows-2022";
const NAMESPACE: &str = "/api/v1/namespaces/capw-windows";
const OWN_CLASS: &str = "/apis/node.k8s.io/v1/runtimeclasses/windows-2025";

fn windows_cluster(deleted: bool, since: Option<&str>) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "w1", "namespace": "lab", "uid": "w", "resourceVersion": "1", "finalizers": ["other", FINALIZER],
            "deletionTimestamp": deleted.then_some(GONE),
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]},
        "spec": {"components": {"mode": "Auto", "policies": {"validation": "Off"}}},
        "status": {"conditions": [], "components": {"removingSince": since, "parts": [{"name": "flannel", "ready": 0, "desired": 0}],
            "objects": ["RuntimeClass windows-2022"]}}})
}

fn cluster(paused: bool, deleted: bool) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab", "deletionTimestamp": deleted.then_some(GONE)},
        "spec": {"paused": paused, "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "ExternalControlPlane", "name": "c1"}}})
}

fn machine() -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "labels": {"cluster.x-k8s.io/cluster-name": "c1"}}, "spec": {"image": "w"}})
}

fn listed(clusters: &[Value]) -> Exchange {
    step(CLUSTERS, json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterList", "metadata": {}, "items": clusters}))
}

/// A workload cluster with our objects for `lab/w1`, one that has a name like ours, and one of another WindowsCluster.
fn workload() -> Arc<Mutex<Server>> {
    let object = |api: &str, kind: &str, name: &str, owner: &str| {
        json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "uid": name, "labels": {"app.kubernetes.io/managed-by": "capw"},
            "annotations": {"infrastructure.cluster.x-k8s.io/windows-cluster": owner}}})
    };
    let mut own = object("node.k8s.io/v1", "RuntimeClass", "windows-2025", "lab/w1");
    own["metadata"]["labels"] = json!({});
    let server = Server::holding([
        (NAMESPACE, object("v1", "Namespace", "capw-windows", "lab/w1")),
        (ROLE, object("rbac.authorization.k8s.io/v1", "ClusterRole", "capw-flannel", "other/w1")),
        (CLASS, object("node.k8s.io/v1", "RuntimeClass", "windows-2022", "lab/w1")),
        (OWN_CLASS, own),
    ]);
    Arc::new(Mutex::new(server))
}

/// Returns which of our objects are left, and checks that all others are unchanged.
fn left(server: &Arc<Mutex<Server>>) -> Vec<String> {
    let (before, now) = (workload(), server.lock().objects.clone());
    let before = before.lock().objects.clone();
    for path in ["/api/v1/namespaces/kube-system", ROLE, OWN_CLASS] {
        assert_eq!(now.get(path), before.get(path), "{path}");
    }
    now.into_keys().filter(|path| [NAMESPACE, CLASS].contains(&path.as_str())).collect()
}

/// One pass of a process that has just started, and another pass if the first waits for the cluster's first answer.
async fn pass(
    object: Value,
    cluster: Option<Value>,
    machines: Vec<Value>,
    server: &Arc<Mutex<Server>>,
    exchanges: Vec<Exchange>,
) -> (Result<Outcome, ReconcileError>, Vec<Recorded>) {
    let caches = Caches { clusters: holding(cluster.into_iter().collect()), windows_machines: holding_unreadable(machines), ..Caches::empty() };
    let (shared, script) = shared_to(caches, 0, exchanges, connect(server));
    let (context, object): (_, Arc<WindowsCluster>) = (shared.windows_cluster(), Arc::new(read(object)));
    (with_answers(async || reconcile(object.clone(), context.clone()).await).await, script.seen())
}

/// The requests of a removal to the management cluster.
fn removal() -> Vec<Exchange> {
    vec![kubeconfig(), step(OBJECT, windows_cluster(false, None))]
}

/// The requests when only the WindowsCluster is deleted: each of two passes reads its Cluster.
fn removal_alone(clusters: &[Value]) -> Vec<Exchange> {
    vec![listed(clusters), kubeconfig(), listed(clusters), step(OBJECT, windows_cluster(false, None))]
}

#[tokio::test]
async fn what_was_brought_goes_with_the_cluster_and_then_the_finalizer() {
    let server = workload();
    let (outcome, seen) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &server, removal()).await;
    assert_eq!((outcome.unwrap(), left(&server)), (Outcome::done(), vec![]));
    assert_eq!(seen[1].body["metadata"]["finalizers"], json!(["other"]));
    let deleted: Vec<String> = server.lock().asked.iter().filter(|line| line.starts_with("DELETE")).cloned().collect();
    assert_eq!(deleted, [format!("DELETE {NAMESPACE}"), format!("DELETE {CLASS}")]);
}

/// Each request fails once, in both clusters, in any way: the next pass completes the removal, and the finalizer is removed last.
#[tokio::test(start_paused = true)]
async fn whatever_request_fails_the_finalizer_goes_after_what_was_brought() {
    let undisturbed = workload();
    let (outcome, _) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &undisturbed, removal()).await;
    outcome.unwrap();
    let asked = undisturbed.lock().asked.clone();
    assert!(asked.len() > 10, "{asked:?}");
    for (nth, fault) in Fault::of(&asked) {
        let (line, server) = (&asked[nth], workload());
        server.lock().failing = Some((nth, fault));
        let mut failing = vec![kubeconfig(), step(STATUS, windows_cluster(false, None))];
        // A fault that passes automatically has no event.
        failing.extend((![Fault::Conflict, Fault::Busy].contains(&fault)).then(|| step(EVENT, json!({}))));
        let (outcome, seen) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &server, failing).await;
        let after = if fault == Fault::Busy { PATIENCE } else { Duration::from_secs(10) };
        assert_eq!(outcome.unwrap(), Outcome::requeue_after(after), "{line}, {fault:?}");
        assert_eq!(seen[1].body["status"]["components"]["removingSince"], json!(GONE), "{line}");
        let (outcome, _) = pass(windows_cluster(false, Some(GONE)), Some(cluster(false, true)), vec![], &server, removal()).await;
        assert_eq!((outcome.unwrap(), left(&server)), (Outcome::done(), vec![]), "{line}, {fault:?}");
    }
    let server = workload();
    let failing = vec![refuse(SECRET, 504, "Timeout"), step(STATUS, windows_cluster(false, None))];
    let (outcome, seen) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &server, failing).await;
    assert_eq!(outcome.unwrap(), Outcome::requeue_after(Duration::from_secs(10)));
    assert_eq!(seen[1].body["status"]["conditions"][0]["reason"], "NotRemoved");
    for failing in [refuse(OBJECT, 409, "Conflict"), refuse(OBJECT, 403, "Forbidden"), refuse(OBJECT, 429, "TooManyRequests"), hang(OBJECT)] {
        let (outcome, _) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &server, vec![kubeconfig(), failing]).await;
        assert!(outcome.is_err() && left(&server).is_empty());
    }
    let (outcome, _) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &server, removal()).await;
    assert_eq!(outcome.unwrap(), Outcome::done());
}

/// Whether the Cluster is paused is read from the API server, whatever the cache has. In doubt, nothing is removed.
#[tokio::test]
async fn a_windows_cluster_that_is_deleted_alone_takes_it_away_unless_its_cluster_is_paused() {
    let deleted = windows_cluster(true, None);
    for (cached, exchanges, is_removed) in [
        (Some(cluster(false, false)), removal_alone(&[cluster(false, false)]), true),
        (None, removal_alone(&[]), true),
        (Some(cluster(false, false)), vec![listed(&[cluster(true, false)]), step(STATUS, deleted.clone())], false),
        (None, vec![listed(&[cluster(true, false)]), step(STATUS, deleted.clone())], false),
    ] {
        let server = workload();
        let (outcome, seen) = pass(deleted.clone(), cached, vec![], &server, exchanges).await;
        assert_eq!((outcome.unwrap(), left(&server).is_empty()), (Outcome::done(), is_removed));
        let is_released = seen.last().unwrap().body["metadata"]["finalizers"] == json!(["other"]);
        assert_eq!(is_released, is_removed);
    }
    let server = workload();
    let (outcome, _) = pass(deleted, Some(cluster(false, false)), vec![], &server, vec![refuse(CLUSTERS, 503, "ServiceUnavailable")]).await;
    assert!(outcome.is_err() && left(&server).len() == 2);
}

#[tokio::test]
async fn nothing_goes_while_a_machine_is_there() {
    let mut unreadable = machine();
    unreadable["spec"] = json!(5);
    for machine in [machine(), unreadable] {
        let server = workload();
        // The WindowsCluster is reconciled as before, and its Cluster has no control plane in this test.
        let exchanges = vec![step(STATUS, windows_cluster(false, None)), step(EVENT, json!({}))];
        let (outcome, _) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![machine], &server, exchanges).await;
        assert_ne!(outcome.unwrap(), Outcome::done(), "nothing tells when the second one is deleted");
        assert!(left(&server).len() == 2 && server.lock().asked.is_empty());
    }
}

#[tokio::test]
async fn what_cannot_be_removed_is_told_and_let_go() {
    let server = workload();
    let before = "2025-12-31T23:00:00Z";
    server.lock().refused = Some(format!("DELETE {NAMESPACE}"));
    let exchanges = vec![kubeconfig(), step(STATUS, windows_cluster(false, None)), step(EVENT, json!({}))];
    let (outcome, seen) = pass(windows_cluster(false, Some(before)), Some(cluster(false, true)), vec![], &server, exchanges).await;
    let condition = &seen[1].body["status"]["conditions"][0];
    assert_eq!((outcome.unwrap(), &condition["reason"]), (Outcome::done(), &json!("LeftBehind")));
    assert_eq!(left(&server), [NAMESPACE], "what is forbidden keeps nothing else");
    let note = seen[2].body["note"].as_str().unwrap();
    for part in ["Cluster c1", "delete namespaces capw-windows", "namespace/capw-windows", "runtimeclass/windows-2022"] {
        assert!(note.contains(part), "{part}: {note}");
    }

    let mut told = windows_cluster(false, Some(before));
    told["status"]["conditions"] = json!([condition]);
    let (outcome, seen) = pass(told, Some(cluster(false, true)), vec![], &server, vec![step(OBJECT, windows_cluster(false, None))]).await;
    assert_eq!((outcome.unwrap(), &seen[0].body["metadata"]["finalizers"]), (Outcome::done(), &json!(["other"])));

    let server = workload();
    let missing = vec![refuse(SECRET, 404, "NotFound"), step(STATUS, windows_cluster(false, None)), step(EVENT, json!({}))];
    let (outcome, seen) = pass(windows_cluster(false, None), Some(cluster(false, true)), vec![], &server, missing).await;
    assert_eq!((outcome.unwrap(), seen[1].body["status"]["conditions"][0]["reason"].as_str()), (Outcome::done(), Some("LeftBehind")));
}

/// With a finalizer that is stored first, every object that CAPW brings is found again.
#[tokio::test]
async fn the_finalizer_is_stored_before_anything_is_brought() {
    let server = workload();
    let mut new = windows_cluster(false, None);
    new["metadata"]["finalizers"] = json!(["other"]);
    let (outcome, seen) = pass(new, Some(cluster(false, false)), vec![], &server, vec![step(OBJECT, windows_cluster(false, None))]).await;
    assert_eq!((outcome.unwrap(), &seen[0].body["metadata"]["finalizers"]), (Outcome::done(), &json!(["other", FINALIZER])));
    assert!(server.lock().asked.is_empty());
}
