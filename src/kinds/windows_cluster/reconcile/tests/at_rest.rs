//! The cost of ten minutes for a cluster with a thousand Windows nodes in which nothing changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::engine::triggers::Requested;
use crate::kinds::windows_cluster::decide::network::RECHECK;
use crate::kinds::windows_cluster::reconcile::*;
use crate::kube_api::mock::{Exchange, Script, step};
use crate::testing::server::{Server, connect, kubeconfig};
use crate::testing::windows_nodes::{NODES, node, pod};
use crate::testing::{holding, read, shared_asked, with_answers};

const PARTS: [&str; 2] = ["flannel", "kube-proxy"];
const RECORDING: &str = "src/components/fixtures/flannel-vxlan-4096.yaml";
/// The interval in which kubelets write an unchanged Node.
const BEATS: Duration = Duration::from_secs(300);
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// The path of an object of the recording.
fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (version, kind, name) = (text("/apiVersion").unwrap(), text("/kind").unwrap().to_ascii_lowercase(), text("/metadata/name").unwrap());
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = text("/metadata/namespace").map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    format!("{root}/{version}/{namespace}{kind}s/{name}")
}

/// A cluster with the network that CAPW extends to Windows nodes, and no Windows nodes yet.
fn cluster() -> Arc<Mutex<Server>> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDING)).unwrap();
    let recorded: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let (others, recorded): (Vec<Value>, Vec<Value>) = recorded.into_iter().partition(|object| object["kind"] == "Node");
    let recorded: Vec<(String, Value)> = recorded.into_iter().map(|object| (path(&object), object)).collect();
    let objects = recorded.iter().map(|(path, object)| (path.as_str(), object.clone()));
    Arc::new(Mutex::new(Server { others, beats: Some(BEATS), ..Server::holding(objects) }))
}

/// Adds the nodes, with each part ready.
fn grow(server: &Arc<Mutex<Server>>) {
    let mut server = server.lock();
    server.others.extend((0..NODES).flat_map(|at| PARTS.map(|part| pod(part, at)).into_iter().chain([node(at)])));
    for (path, set) in &mut server.objects {
        if path.contains("/capw-windows/daemonsets/") {
            set["status"] = json!({"desiredNumberScheduled": NODES, "updatedNumberScheduled": NODES, "numberReady": NODES});
        }
    }
}

fn windows_cluster() -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "w1", "namespace": "lab", "uid": "w", "resourceVersion": "1", "finalizers": [FINALIZER],
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]},
        "spec": {"components": {"mode": "Auto"}}})
}

fn caches() -> Caches {
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": {"controlPlaneEndpoint": {"host": "api.example.com", "port": 6443}}, "status": {"initialization": {"controlPlaneInitialized": true}}});
    let hypervisor = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
        "metadata": {"name": "h1", "namespace": "lab"}, "spec": {}});
    Caches { clusters: holding(vec![cluster]), hypervisors: holding(vec![hypervisor]), ..Caches::empty() }
}

/// A process that has just started, whose management cluster answers with `exchanges`.
fn started(server: &Arc<Mutex<Server>>, exchanges: Vec<Exchange>) -> (Context, Script, Requested) {
    let (shared, script, requested) = shared_asked(caches(), 0, exchanges, connect(server));
    (shared.windows_cluster(), script, requested)
}

async fn pass(context: &Context, object: &Value) -> Outcome {
    let object: Arc<WindowsCluster> = Arc::new(read(object.clone()));
    with_answers(async || reconcile(object.clone(), context.clone()).await).await.unwrap()
}

/// The WindowsCluster once everything is brought and reported.
async fn settled(server: &Arc<Mutex<Server>>, mut object: Value) -> Value {
    for _ in 0..10 {
        // A status, and events.
        let written = std::iter::repeat_with(|| step("P*", object.clone())).take(5);
        let (context, script, _) = started(server, std::iter::once(kubeconfig()).chain(written).collect());
        let outcome = pass(&context, &object).await;
        context.clusters.stop();
        let said = script.seen().into_iter().find_map(|seen| seen.body.get("status").cloned());
        // Some of the answers are not used.
        std::mem::forget(script);
        let Some(said) = said else {
            assert_eq!(outcome, Outcome::requeue_after(RECHECK), "{:#}", object["status"]);
            return object;
        };
        object["status"] = said;
    }
    panic!("it changes with each pass: {object:#}")
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_at_rest_are_looked_at_every_five_minutes_and_nothing_is_asked() {
    let server = cluster();
    let object = settled(&server, windows_cluster()).await;
    grow(&server);
    let object = settled(&server, object).await;
    let components = &object["status"]["components"];
    assert_eq!((&components["verified"], components["parts"].as_array().unwrap().len()), (&json!(format!("{NODES}/{NODES}")), 2), "{components:#}");
    for condition in object["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["status"] == "True", condition["type"] != "Paused", "{condition:#}");
    }

    // A pass a minute later reads the Secret with the kubeconfig again. The management cluster gets no other request.
    let (context, _script, mut requested) = started(&server, vec![kubeconfig(), kubeconfig()]);
    server.lock().asked.clear();
    let end = Instant::now() + TEN_MINUTES;
    let mut passes = Vec::new();
    while Instant::now() < end {
        passes.push((TEN_MINUTES - (end - Instant::now())).as_secs());
        assert_eq!(pass(&context, &object).await, Outcome::requeue_after(RECHECK), "{passes:?}");
        let again = (Instant::now() + RECHECK).min(end);
        if timeout_at(again, requested.windows_clusters.next()).await.is_ok() {
            while requested.windows_clusters.try_recv().is_ok() {}
        }
        // The reads of the first pass, and the watches that follow.
        let asked = std::mem::take(&mut server.lock().asked);
        let is_first = passes.len() == 1;
        assert!(asked.iter().all(|line| is_first && line.starts_with("GET ") && !line.ends_with("/log")), "{passes:?}: {asked:?}");
    }
    context.clusters.stop();
    assert_eq!(passes, [0, 1, 301]);
    assert!(server.lock().beaten > 0, "the kubelets live");
}
