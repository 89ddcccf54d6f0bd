//! Components in a workload cluster that keeps applied objects, and refuses the requests that a test names.

mod faults;
mod probes;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use crate::api::capi::Cluster;
use crate::api::components::ProbesMode;
use crate::api::condition::ConditionType;
use crate::engine::caches::Caches;
use crate::kinds::windows_cluster::decide::planned::by_another;
use crate::kinds::windows_cluster::windows_side::*;
use crate::kube_api::mock::{Script, refuse, step};
use crate::testing::server::{Fault, Server, connect, kubeconfig, workload};
use crate::testing::{holding, read as object, shared, shared_to};

fn recorded(recording: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures").join(recording);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn cluster() -> TargetCluster {
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": {"controlPlaneEndpoint": {"host": "api.example.com", "port": 6443}}});
    TargetCluster::of_cluster(&object::<Cluster>(cluster), None)
}

/// A WindowsCluster whose status names a part and an object, unless nothing is brought yet.
fn windows_cluster(name: &str, is_announced: bool) -> WindowsCluster {
    let (parts, objects) = if is_announced {
        (json!([{"name": "flannel", "ready": 0, "desired": 0}]), json!(["RuntimeClass windows-2022"]))
    } else {
        (json!([]), json!([]))
    };
    object(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": {"name": name, "namespace": "lab"},
        "spec": {"components": {"policies": {"validation": "Off"}}}, "status": {"components": {"parts": parts, "objects": objects}}}))
}

async fn brought(server: &Arc<Mutex<Server>>, recording: &str, object: &WindowsCluster) -> Result<Brought, WorkloadError> {
    brought_with(Caches::empty(), server, recording, object).await
}

async fn brought_with(caches: Caches, server: &Arc<Mutex<Server>>, recording: &str, object: &WindowsCluster) -> Result<Brought, WorkloadError> {
    let (shared, _script) = shared(caches, 1, vec![]);
    let mut objects = recorded(recording);
    objects.extend(server.lock().others.clone());
    let is_listed = |object: &&Value| {
        ["DaemonSet", "RuntimeClass", "Service"].contains(&object["kind"].as_str().unwrap())
            || object["apiVersion"].as_str().unwrap().starts_with(ADMISSION)
    };
    objects.extend(server.lock().objects.values().filter(is_listed).cloned());
    bring(&shared.windows_cluster(), &workload(server), &objects, &read(&objects), object, &cluster()).await
}

const RECORDING: &str = "flannel-vxlan-4096.yaml";

#[tokio::test]
async fn it_is_applied_once_for_one_owner_and_goes_as_a_whole() {
    let server = Arc::new(Mutex::new(Server::default()));
    let writes = |server: &Arc<Mutex<Server>>| server.lock().asked.iter().filter(|line| !line.starts_with("GET")).count();
    let (new, c1, c2) = (windows_cluster("c1", false), windows_cluster("c1", true), windows_cluster("c2", true));
    let first = brought(&server, RECORDING, &new).await.unwrap();
    assert_eq!((first.parts.len(), writes(&server)), (2, 0), "what is to be removed one day is stored first");
    let second = brought(&server, RECORDING, &c1).await.unwrap();
    assert_eq!((second.condition.status, second.condition.reason), (Some(false), Reason::PartNotReady), "nothing is known of it yet");
    assert_eq!(writes(&server), 10);
    let set = "/apis/apps/v1/namespaces/capw-windows/daemonsets/flannel";
    let endpoint = "/spec/template/spec/containers/0/env/2/value";
    assert_eq!(server.lock().objects[set].pointer(endpoint), Some(&json!("https://api.example.com:6443")));

    let again = brought(&server, RECORDING, &c1).await.unwrap();
    assert_eq!((again.condition.reason, again.parts.len(), again.verified.as_deref()), (Reason::PartsReady, 2, Some("0/0")));
    assert_eq!(writes(&server), 10, "nothing is written when nothing has changed");

    let other = brought(&server, RECORDING, &c2).await.unwrap();
    assert_eq!(other.condition.reason, Reason::NameTaken);
    take_away(&workload(&server), &c2).await.unwrap();
    assert_eq!(writes(&server), 10, "what another asks for is not touched");

    take_away(&workload(&server), &c1).await.unwrap();
    // Objects in the namespace are deleted with it.
    let left: Vec<String> = server.lock().objects.keys().filter(|path| !path.contains("/namespaces/capw-windows/")).cloned().collect();
    assert_eq!(left, [""; 0]);
}

fn tainted_node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": "n", "resourceVersion": "7", "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"taints": [{"key": "startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified", "effect": "NoSchedule"}]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.9"}]}})
}

const TAINT_GOES: &str = "PATCH /api/v1/nodes/win-1";

/// A ready pod of that part, on the node of the tests.
fn ready_pod(part: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": part, "labels": {"app.kubernetes.io/name": part}}, "spec": {"nodeName": "win-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A WindowsCluster without probes.
fn without_probes() -> WindowsCluster {
    let mut object = windows_cluster("c1", true);
    object.spec.components.as_mut().unwrap().probes.mode = ProbesMode::Off;
    object
}

#[tokio::test]
async fn without_probes_the_taint_goes_when_the_pods_of_a_node_are_ready() {
    for (pods, verified, patched) in [(vec!["flannel"], "0/1", false), (vec!["flannel", "kube-proxy"], "1/1", true)] {
        let others = std::iter::once(tainted_node()).chain(pods.into_iter().map(ready_pod)).collect();
        let server = Arc::new(Mutex::new(Server { others, ..Server::default() }));
        let seen = brought(&server, RECORDING, &without_probes()).await.unwrap();
        assert_eq!(seen.verified.as_deref(), Some(verified));
        assert_eq!(server.lock().asked.contains(&TAINT_GOES.to_owned()), patched);
    }
}

/// Without routes to other nodes, kube-proxy alone is not enough.
#[tokio::test]
async fn where_calicos_operator_brings_the_network_its_pod_counts_too() {
    const CALICO: &str = "calico-operator-windows.yaml";
    for (pods, verified, patched) in [(vec!["kube-proxy"], "0/1", false), (vec!["kube-proxy", "calico-node-windows"], "1/1", true)] {
        let others = std::iter::once(tainted_node()).chain(pods.into_iter().map(ready_pod)).collect();
        let server = Arc::new(Mutex::new(Server { others, ..Server::default() }));
        let seen = brought(&server, CALICO, &without_probes()).await.unwrap();
        let names: Vec<&str> = seen.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!((names, seen.verified.as_deref()), (vec!["calico-node-windows", "kube-proxy"], Some(verified)));
        let server = server.lock();
        assert_eq!(server.asked.contains(&TAINT_GOES.to_owned()), patched);
        assert_eq!(server.objects.len(), 5, "{:?}", server.objects.keys());
    }
    let part = by_another(&[], &read(&recorded(CALICO)), &[]).unwrap();
    assert!(part.message.unwrap().starts_with("DaemonSet calico-system/calico-node-windows is not there"));
}

/// The taint is useless if another program brings the network, and must not outlive the controller that would remove it.
#[tokio::test]
async fn the_taint_goes_where_nothing_is_brought() {
    let with_node = || Arc::new(Mutex::new(Server { others: vec![tainted_node()], ..Server::default() }));
    for (recording, is_lifted) in [("wmco.yaml", true), ("flannel-manifest.yaml", false), ("cilium.yaml", false)] {
        let server = with_node();
        let said = brought(&server, recording, &windows_cluster("c1", false)).await.unwrap();
        assert_eq!(said.condition.reason, Reason::NotDeployed, "{recording}");
        assert_eq!(server.lock().asked.contains(&TAINT_GOES.to_owned()), is_lifted, "{recording}");
    }
    let server = with_node();
    let kube_system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "k"}});
    server.lock().objects.insert("/api/v1/namespaces/kube-system".to_owned(), kube_system);
    let (shared, _script) = shared_to(Caches::empty(), 1, vec![kubeconfig()], connect(&server));
    let context = shared.windows_cluster();
    let left = async || teardown(&context, &windows_cluster("c1", true), &cluster()).await;
    assert!(left().await.is_err_and(|error| error.is_pending()), "nothing is said before the first answer");
    let left = loop {
        match left().await {
            Err(_) => tokio::task::yield_now().await,
            Ok(left) => break left,
        }
    };
    assert!(left.is_none(), "nothing is left");
    assert_eq!(server.lock().asked.last().map(String::as_str), Some(TAINT_GOES));
}

#[tokio::test]
async fn what_cannot_be_removed_is_said_and_tried_again() {
    let kubeconfig = refuse("GET /api/v1/namespaces/lab/secrets/c1-kubeconfig", 404, "NotFound");
    let (shared, _script) = shared(Caches::empty(), 1, vec![kubeconfig]);
    let context = shared.windows_cluster();
    let left = teardown(&context, &windows_cluster("c1", true), &cluster()).await.unwrap().unwrap();
    assert_eq!((left.condition.type_, left.condition.status, left.parts.len()), (ConditionType::ComponentsReady, Some(false), 1));
    assert!(left.condition.message.contains("is not removed yet: "), "{}", left.condition.message);
    assert!(teardown(&context, &windows_cluster("c1", false), &cluster()).await.unwrap().is_none(), "nothing was brought");
}

#[tokio::test]
async fn what_is_in_the_way_is_said_and_nothing_is_applied() {
    for recording in ["flannel-manifest.yaml", "calico-operator-vxlan.yaml", "cilium.yaml"] {
        let server = Arc::new(Mutex::new(Server::default()));
        let said = brought(&server, recording, &windows_cluster("c1", false)).await.unwrap();
        assert_eq!((said.condition.reason, server.lock().asked.len()), (Reason::NotDeployed, 0), "{recording}");
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses/";

/// An existing RuntimeClass of CAPW for the WindowsCluster `c1`.
fn class(name: &str, handler: &str) -> (String, Value) {
    let metadata = json!({"name": name, "uid": name, "labels": {"app.kubernetes.io/managed-by": "capw"},
        "annotations": {"infrastructure.cluster.x-k8s.io/windows-cluster": "lab/c1"}});
    (format!("{CLASSES}{name}"), json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata, "handler": handler}))
}

/// The Windows releases that have a RuntimeClass.
fn classes(server: &Arc<Mutex<Server>>) -> Vec<String> {
    server.lock().objects.keys().filter_map(|path| path.strip_prefix(CLASSES)).map(str::to_owned).collect()
}

fn windows_node(build: &str) -> Value {
    let labels = json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": "n", "resourceVersion": "7", "labels": labels}})
}

/// Caches with a template from which Cluster API creates machines of this release.
fn with_template(release: &str) -> Caches {
    let owner = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": "c"}]);
    let template = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfigTemplate",
        "metadata": {"name": "t", "namespace": "lab", "ownerReferences": owner}, "spec": {"template": {"spec": {"windowsRelease": release}}}});
    Caches { config_templates: holding(vec![template]), ..Caches::empty() }
}

/// RuntimeClasses do not depend on the network.
#[tokio::test]
async fn classes_come_with_nodes_and_templates_and_go_with_their_last_pod() {
    let server = Arc::new(Mutex::new(Server { others: vec![windows_node("10.0.20348")], ..Server::default() }));
    let (new, c1, both) = (windows_cluster("c1", false), windows_cluster("c1", true), ["RuntimeClass windows-2022", "RuntimeClass windows-2025"]);
    let first = brought_with(with_template("2025"), &server, "cilium.yaml", &new).await.unwrap();
    assert_eq!((classes(&server).len(), first.requeue_after), (0, Duration::ZERO), "what is to be removed one day is stored first");
    assert_eq!((first.objects, first.condition.reason), (both.map(str::to_owned).to_vec(), Reason::NotDeployed));
    for part in ["the network is cilium", "2 objects are to be applied"] {
        assert!(first.condition.message.contains(part), "{}", first.condition.message);
    }
    for _ in 0..2 {
        let then = brought_with(with_template("2025"), &server, "cilium.yaml", &c1).await.unwrap();
        assert_eq!((then.objects, then.condition.reason), (both.map(str::to_owned).to_vec(), Reason::NotDeployed));
        assert_eq!(classes(&server), ["windows-2022", "windows-2025"]);
    }
    let asked = |line: &str| server.lock().asked.iter().filter(|asked| asked.starts_with(line)).count();
    assert_eq!((asked("PATCH"), asked("GET /api/v1/pods")), (2, 0), "nothing is written when nothing has changed, and pods do not matter");

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [], "runtimeClassName": "windows-2025"}});
    server.lock().others.push(pod);
    let used = brought(&server, "cilium.yaml", &c1).await.unwrap();
    assert_eq!((used.objects, classes(&server).len()), (both.map(str::to_owned).to_vec(), 2), "a pod uses it");
    server.lock().others.pop();
    let unused = brought(&server, "cilium.yaml", &c1).await.unwrap();
    assert_eq!((unused.objects, classes(&server)), (vec![both[0].to_owned()], vec!["windows-2022".to_owned()]));
    assert_eq!((asked("PATCH"), asked("GET /api/v1/pods"), asked("DELETE")), (2, 2, 1));
}

#[tokio::test]
async fn a_class_that_is_not_ours_stays_and_hides_nothing() {
    let (path, mut foreign) = class("windows-2022", "runhcs-wcow-process");
    foreign["metadata"]["labels"] = json!({});
    let others = vec![windows_node("10.0.20348")];
    let server = Arc::new(Mutex::new(Server { others, objects: BTreeMap::from([(path.clone(), foreign.clone())]), ..Server::default() }));
    let c1 = windows_cluster("c1", true);
    let why = "RuntimeClass windows-2022 is there already";
    for (recording, reason) in [("cilium.yaml", Reason::NotDeployed), (RECORDING, Reason::PartNotReady), (RECORDING, Reason::NameTaken)] {
        let said = brought_with(with_template("2025"), &server, recording, &c1).await.unwrap();
        assert_eq!((said.condition.reason, said.objects), (reason, vec!["RuntimeClass windows-2025".to_owned()]));
        assert!(said.condition.message.contains(why), "{}", said.condition.message);
        assert_eq!(classes(&server), ["windows-2022", "windows-2025"]);
    }
    take_away(&workload(&server), &c1).await.unwrap();
    assert_eq!((classes(&server), &server.lock().objects[&path]), (vec!["windows-2022".to_owned()], &foreign));
}

/// A WindowsCluster whose status names policies too.
fn with_validation(validation: &str) -> WindowsCluster {
    let mut object = windows_cluster("c1", true);
    let policies = ["ValidatingAdmissionPolicy capw-windows-pods", "ValidatingAdmissionPolicyBinding capw-windows-pods"].map(str::to_owned);
    object.status.as_mut().unwrap().components.as_mut().unwrap().objects.extend(policies);
    object.spec.components = Some(serde_json::from_value(json!({"policies": {"validation": validation}})).unwrap());
    object
}

#[tokio::test]
async fn policies_follow_what_is_asked_for_and_leave_the_rest() {
    let server = Arc::new(Mutex::new(Server { others: vec![windows_node("10.0.20348")], ..Server::default() }));
    let with_classes_only = WindowsCluster { status: windows_cluster("c1", true).status, ..with_validation("Warn") };
    let first = brought(&server, "cilium.yaml", &with_classes_only).await.unwrap();
    let written = server.lock().objects.len();
    assert_eq!((first.objects.len(), written), (7, 0), "what is to be removed one day is stored first");
    for (validation, written, left) in [("Warn", 6, 6), ("Warn", 0, 6), ("Deny", 1, 6), ("Off", 6, 0), ("Off", 0, 0)] {
        let is_write = |line: &&String| !line.starts_with("GET") && line.contains(ADMISSION);
        let before = server.lock().asked.iter().filter(is_write).count();
        let said = brought(&server, "cilium.yaml", &with_validation(validation)).await.unwrap();
        assert_eq!(said.objects.len(), 1 + left, "{:?}", said.objects);
        let server = server.lock();
        assert_eq!(server.asked.iter().filter(is_write).count() - before, written, "{validation}: {:#?}", server.asked);
        assert_eq!(server.objects.keys().filter(|path| path.contains(ADMISSION)).count(), left, "{validation}");
    }
    assert_eq!(classes(&server), ["windows-2022"]);
}

#[tokio::test]
async fn a_cluster_whose_api_server_has_no_policies_gets_the_rest() {
    let others = vec![windows_node("10.0.20348")];
    let server = Arc::new(Mutex::new(Server { others, without: Some(ADMISSION), ..Server::default() }));
    let object = with_validation("Warn");
    brought(&server, RECORDING, &object).await.unwrap();
    let said = brought(&server, RECORDING, &object).await.unwrap();
    assert_eq!((said.condition.reason, said.parts.len()), (Reason::NotDeployed, 2));
    for part in ["kind ValidatingAdmissionPolicy:", "kind ValidatingAdmissionPolicyBinding:", "spec.components.policies"] {
        assert!(said.condition.message.contains(part), "{}", said.condition.message);
    }
    assert_eq!(server.lock().objects.len(), 11, "the network and the RuntimeClass");
    take_away(&workload(&server), &object).await.unwrap();
}

/// A cluster with a RuntimeClass that no host needs, and one whose handler is wrong and immutable.
fn with_classes(failing: Option<(usize, Fault)>, refused: Option<String>) -> Arc<Mutex<Server>> {
    let objects = BTreeMap::from([class("windows-2019", "runhcs-wcow-process"), class("windows-2022", "runc")]);
    Arc::new(Mutex::new(Server { objects, others: vec![windows_node("10.0.20348")], failing, refused, ..Server::default() }))
}

#[tokio::test]
async fn each_request_that_is_refused_is_named() {
    let object = windows_cluster("c1", true);
    let server = with_classes(None, None);
    brought(&server, RECORDING, &object).await.unwrap();
    let asked = server.lock().asked.clone();
    // Each object is read before it is written.
    assert_eq!(asked.len(), 26, "{asked:?}");
    for line in asked {
        let server = with_classes(None, Some(line.clone()));
        let Err(WorkloadError::Forbidden { what }) = brought(&server, RECORDING, &object).await.map(drop) else { panic!("{line}") };
        let name = line.rsplit('/').next().unwrap();
        assert!(what.contains(name), "{line}: {what}");
    }
}

#[tokio::test]
async fn an_object_is_removed_as_it_was_read() {
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "handler": "h"});
    let (client, script) = Script::new(vec![step("DELETE /apis/node.k8s.io/v1/runtimeclasses/a", class.clone())]);
    remove(&Workload::of(client), &class).await.unwrap();
    assert_eq!(script.seen()[0].body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
}
