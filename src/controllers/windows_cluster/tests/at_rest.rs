//! A cluster with a thousand Windows nodes in which nothing changes: what ten minutes of it cost.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::super::server::{Server, connect, kubeconfig};
use super::super::*;
use crate::cluster::mock::{Exchange, Script, step};
use crate::controllers::runtime::triggers::Requested;
use crate::controllers::testing::{holding, read, shared_asked, with_answers};
use crate::lifecycle::network::RECHECK;

pub const NODES: usize = 1000;
const PARTS: [&str; 2] = ["flannel", "kube-proxy"];
const RECORDING: &str = "src/components/fixtures/flannel-vxlan-4096.yaml";
/// So often kubelets write a Node that is as it was.
const BEATS: Duration = Duration::from_secs(300);
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// A Windows node that is verified, as its kubelet, flanneld and Cluster API write it.
pub fn node(at: usize) -> Value {
    // After those of the Linux nodes.
    let (name, part) = (format!("win-{at}"), at + 8);
    let block = format!("10.244.{}.{}/26", part / 4, part % 4 * 64);
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": format!("KubeletHas{type_}"), "message": format!("kubelet says {type_} of this node"),
            "lastHeartbeatTime": "2026-01-01T00:05:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let image = |at: usize| json!({"names": [format!("registry.example.com/app-{at}@sha256:{at:064}")], "sizeBytes": 1_000_000});
    let manager = |at: usize| {
        json!({"manager": format!("manager-{at}"), "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:05:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": {}}}})
    };
    let resources = json!({"cpu": "8", "ephemeral-storage": "133703676Ki", "memory": "33553972Ki", "pods": "110"});
    let address = format!("10.1.{}.{}", at / 256, at % 256);
    let labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348", "topology.kubernetes.io/zone": "rack-1",
        "node.cluster.x-k8s.io/pool": "windows", "node-role.kubernetes.io/worker": "",
    });
    let annotations = json!({
        "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/cluster-namespace": "lab", "cluster.x-k8s.io/machine": name,
        "cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": "windows-x7k2p",
        "flannel.alpha.coreos.com/backend-data": format!("{{\"VNI\":4096,\"VtepMAC\":\"00:15:5d:00:{:02x}:{:02x}\"}}", at / 256, at % 256),
        "flannel.alpha.coreos.com/backend-type": "vxlan", "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        "flannel.alpha.coreos.com/public-ip": address, "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    let system = json!({
        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.3.1", "kernelVersion": "10.0.20348.2700",
        "kubeProxyVersion": "v1.36.3", "kubeletVersion": "v1.36.3", "machineID": name, "operatingSystem": "windows",
        "osImage": "Windows Server 2022 Standard", "systemUUID": format!("4C4C4544-0042-3510-8052-{at:012}"),
    });
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(|type_| condition(type_, "False"));
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "allocatable": resources, "capacity": resources, "conditions": conditions, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": (0..20).map(image).collect::<Vec<_>>(), "nodeInfo": system,
    });
    let metadata = json!({
        "name": name, "uid": format!("9d0e2c74-5a35-4a1e-9c5b-{at:012}"), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels, "annotations": annotations, "managedFields": (0..4).map(manager).collect::<Vec<_>>(),
    });
    let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let spec = json!({"podCIDR": block, "podCIDRs": [block], "providerID": format!("capw://lab/{name}"), "taints": taints});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status})
}

/// The pod of a DaemonSet on that node, as its kubelet writes it.
pub fn pod(part: &str, at: usize) -> Value {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("C:\\capw\\{name}")});
    let volumes = ["settings", "run", "token"];
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": part, "uid": "d", "controller": true, "blockOwnerDeletion": true});
    let labels = json!({"app.kubernetes.io/managed-by": "capw", "app.kubernetes.io/name": part, "app.kubernetes.io/part-of": "capw",
        "controller-revision-hash": "7c8f6d9b5", "pod-template-generation": "1"});
    let metadata = json!({
        "name": format!("{part}-{at:05}"), "namespace": "capw-windows", "generateName": format!("{part}-"), "uid": format!("1f6f7f0a-{part}-{at:012}"),
        "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "ownerReferences": [owner],
        "annotations": {"infrastructure.cluster.x-k8s.io/settings": "0123456789abcdef"},
    });
    let variable = |at: usize| json!({"name": format!("VARIABLE_{at}"), "value": "10.96.0.1"});
    let container = json!({"name": part, "image": "registry.example.com/capw:v0", "args": [part], "volumeMounts": volumes.map(mount),
        "env": (0..6).map(variable).collect::<Vec<_>>()});
    let toleration = |at: usize| json!({"key": format!("node.kubernetes.io/trouble-{at}"), "operator": "Exists"});
    let spec = json!({
        "nodeName": format!("win-{at}"), "hostNetwork": true, "priorityClassName": "system-node-critical", "os": {"name": "windows"},
        "volumes": volumes.map(|name| json!({"name": name, "hostPath": {"path": format!("C:\\capw\\{name}"), "type": "DirectoryOrCreate"}})),
        "containers": [container], "tolerations": (0..8).map(toleration).collect::<Vec<_>>(),
    });
    let ran = json!({"name": part, "ready": true, "started": true, "restartCount": 0, "image": "registry.example.com/capw:v0",
        "imageID": format!("registry.example.com/capw@sha256:{at:064}"), "containerID": format!("containerd://{at:064}"),
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": {}, "volumeMounts": volumes.map(mount)});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let status = json!({
        "phase": "Running", "hostIP": "10.1.0.1", "podIP": "10.1.0.1", "qosClass": "Burstable", "startTime": "2026-01-01T00:00:00Z",
        "conditions": conditions, "containerStatuses": [ran],
    });
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
}

/// The path of an object of the recording.
fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (version, kind, name) = (text("/apiVersion").unwrap(), text("/kind").unwrap().to_ascii_lowercase(), text("/metadata/name").unwrap());
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = text("/metadata/namespace").map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    format!("{root}/{version}/{namespace}{kind}s/{name}")
}

/// With the network that CAPW carries to Windows nodes, and none of these yet.
fn cluster() -> Arc<Mutex<Server>> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDING)).unwrap();
    let recorded: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let (others, recorded): (Vec<Value>, Vec<Value>) = recorded.into_iter().partition(|object| object["kind"] == "Node");
    let recorded: Vec<(String, Value)> = recorded.into_iter().map(|object| (path(&object), object)).collect();
    let objects = recorded.iter().map(|(path, object)| (path.as_str(), object.clone()));
    Arc::new(Mutex::new(Server { others, beats: Some(BEATS), ..Server::holding(objects) }))
}

/// The nodes join, and each part gets on.
fn grow(server: &Arc<Mutex<Server>>) {
    let mut server = server.lock().unwrap();
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

/// A process that has just started; the management cluster answers this.
fn started(server: &Arc<Mutex<Server>>, exchanges: Vec<Exchange>) -> (Context, Script, Requested) {
    let (shared, script, requested) = shared_asked(caches(), 0, exchanges, connect(server));
    (shared.windows_cluster(), script, requested)
}

async fn pass(context: &Context, object: &Value) -> Outcome {
    let object: Arc<WindowsCluster> = Arc::new(read(object.clone()));
    with_answers(async || reconcile(object.clone(), context.clone()).await).await.unwrap()
}

/// The WindowsCluster once all is brought and told.
async fn settled(server: &Arc<Mutex<Server>>, mut object: Value) -> Value {
    for _ in 0..10 {
        // A status, and events.
        let written = std::iter::repeat_with(|| step("P*", object.clone())).take(5);
        let (context, script, _) = started(server, std::iter::once(kubeconfig()).chain(written).collect());
        let outcome = pass(&context, &object).await;
        context.clusters.stop();
        let said = script.seen().into_iter().find_map(|seen| seen.body.get("status").cloned());
        // Not all of the answers are asked for.
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

    // The Secret with the kubeconfig is read again by a pass that comes a minute later. Nothing else is asked of the management cluster.
    let (context, _script, mut requested) = started(&server, vec![kubeconfig(), kubeconfig()]);
    server.lock().unwrap().asked.clear();
    let end = Instant::now() + TEN_MINUTES;
    let mut passes = Vec::new();
    while Instant::now() < end {
        passes.push((TEN_MINUTES - (end - Instant::now())).as_secs());
        assert_eq!(pass(&context, &object).await, Outcome::requeue_after(RECHECK), "{passes:?}");
        let again = (Instant::now() + RECHECK).min(end);
        if timeout_at(again, requested.windows_clusters.next()).await.is_ok() {
            while requested.windows_clusters.try_recv().is_ok() {}
        }
        // What the first passes read, and the watches that follow.
        let asked = std::mem::take(&mut server.lock().unwrap().asked);
        let is_first = passes.len() == 1;
        assert!(asked.iter().all(|line| is_first && line.starts_with("GET ") && !line.ends_with("/log")), "{passes:?}: {asked:?}");
    }
    context.clusters.stop();
    assert_eq!(passes, [0, 1, 301]);
    assert!(server.lock().unwrap().beaten > 0, "the kubelets live");
}
