//! The parts of these stories: the autoscaler, and Deployments whose pods wait for nodes.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{ControlPlane, Kind, Process, text, wait_for};

pub const LIMIT: Duration = Duration::from_secs(120);
pub const POD: Kind = Kind::new("v1", "pods");
/// The flag from the page: without it the autoscaler treats a Ready Node with the taint as useless to every pod, and creates another one.
const STARTUP_TAINT: &str = "--startup-taint=node.cluster.x-k8s.io/uninitialized";
/// The namespace of a story's pods.
const PODS: &str = "default";

/// The path of the cluster-autoscaler program.
pub fn program() -> PathBuf {
    let path = std::env::var_os("CLUSTER_AUTOSCALER").filter(|path| !path.is_empty());
    let path = PathBuf::from(path.expect("CLUSTER_AUTOSCALER names a cluster-autoscaler 1.35 or later"));
    assert!(path.exists(), "CLUSTER_AUTOSCALER={}: there is no such file", path.display());
    path
}

/// A cluster-autoscaler with the rights of the page's ServiceAccount and short intervals. Not started yet.
pub async fn autoscaler(program: &std::path::Path, cp: &ControlPlane, args: &[String]) -> Process {
    let kubeconfig = cp.kubeconfig_for("kube-system", "cluster-autoscaler").await;
    Process::new("cluster-autoscaler", program, cp.directory())
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            "--address=127.0.0.1:0".to_owned(),
            "--leader-elect=false".to_owned(),
            STARTUP_TAINT.to_owned(),
            "--v=4".to_owned(),
            "--scan-interval=1s".to_owned(),
            "--scale-down-unneeded-time=3s".to_owned(),
            "--scale-down-delay-after-add=1s".to_owned(),
            "--scale-down-delay-after-failure=1s".to_owned(),
        ])
        .args(args)
}

/// A Deployment of pods for Windows that need a node each, as 2 of its 4 processors are more than half.
pub async fn want_windows_pods(cp: &ControlPlane, name: &str, replicas: usize) {
    let taint = json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    // The selector of a RuntimeClass.
    let selector = json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"});
    want_pods(cp, name, replicas, "2", selector, taint).await;
}

/// Creates a Deployment of pods for any node, each with that many processors.
pub async fn want_pods(cp: &ControlPlane, name: &str, replicas: usize, cpu: &str, selector: Value, tolerations: Value) {
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": PODS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": selector,
                    "tolerations": tolerations,
                    // No kubelet runs here, so nothing could confirm that a pod ended.
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "app", "image": "example.invalid/app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
                },
            },
        },
    });
    cp.apply_objects(&[deployment]).await;
}

/// Waits until every pod of a Deployment is bound to a node.
pub async fn wait_bound(cp: &ControlPlane, name: &str, replicas: usize, autoscaler: &Process) {
    wait_for(&format!("{replicas} pods of {name} have nodes"), LIMIT, || async {
        let pods = pods(cp, name).await;
        let bound = pods.iter().filter(|pod| !text(pod, "/spec/nodeName").is_empty()).count();
        if (pods.len(), bound) == (replicas, replicas) {
            return Ok(());
        }
        Err(format!("{bound} of {} pods; the autoscaler says\n{}", pods.len(), autoscaler.log_end()))
    })
    .await;
}

pub async fn pods(cp: &ControlPlane, name: &str) -> Vec<Value> {
    let mut pods = cp.list(POD, Some(PODS)).await;
    pods.retain(|pod| text(pod, "/metadata/labels/app") == name);
    pods
}

/// Waits until the autoscaler reports for a pod of this Deployment that no node group would help.
pub async fn wait_refused(cp: &ControlPlane, name: &str, autoscaler: &Process) {
    wait_for(&format!("the autoscaler says that no group helps {name}"), LIMIT, || async {
        let events = cp.list(Kind::EVENT, Some(PODS)).await;
        let about = |event: &&Value| text(event, "/involvedObject/name").starts_with(&format!("{name}-"));
        let said = events.iter().filter(about).find(|event| text(event, "/reason") == "NotTriggerScaleUp").cloned();
        said.ok_or_else(|| autoscaler.log_end())
    })
    .await;
}

/// Lowers the Deployment by one; returns the node that is then empty, and the other nodes.
pub async fn take_one_pod_away(cp: &ControlPlane) -> (String, Vec<String>) {
    let before = names(&cp.list(Kind::NODE, None).await);
    want_windows_pods(cp, "windows", 2).await;
    let mut kept = wait_for("two pods are left", LIMIT, || async {
        let pods = pods(cp, "windows").await;
        let nodes: Vec<String> = pods.iter().map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
        if nodes.len() == 2 { Ok(nodes) } else { Err(format!("{nodes:?}")) }
    })
    .await;
    kept.sort();
    let gone = before.into_iter().find(|node| !kept.contains(node)).expect("three nodes, two pods");
    (gone, kept)
}

/// Waits until exactly these Nodes exist; `expected` is sorted.
pub async fn wait_nodes(cp: &ControlPlane, expected: &[String], autoscaler: &Process) {
    wait_for(&format!("the Nodes are {expected:?}"), LIMIT, || async {
        let nodes = names(&cp.list(Kind::NODE, None).await);
        if nodes == expected { Ok(()) } else { Err(format!("{nodes:?}\n{}", autoscaler.log_end())) }
    })
    .await;
}

fn names(objects: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = objects.iter().map(|object| text(object, "/metadata/name").to_owned()).collect();
    names.sort();
    names
}
