//! What these stories start and look at: the autoscaler, and Deployments whose pods wait for nodes.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::workers;
use crate::world::{ControlPlane, Kind, Process, step, text, wait_for};

pub const LIMIT: Duration = Duration::from_secs(120);
const POD: Kind = Kind::new("v1", "pods");
/// Where the pods of a story are.
const PODS: &str = "default";

/// The program, if this machine has one; else the story says that it is skipped.
pub fn program() -> Option<PathBuf> {
    match std::env::var_os("CLUSTER_AUTOSCALER").filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            assert!(path.exists(), "CLUSTER_AUTOSCALER={}: there is no such file", path.display());
            Some(path)
        }
        None => {
            step("SKIPPED: CLUSTER_AUTOSCALER names no program; set it to a cluster-autoscaler 1.35 or later to run this story");
            None
        }
    }
}

/// A cluster-autoscaler with the rights of the account that the page makes for it, and in a hurry. Not started yet.
pub async fn autoscaler(program: &std::path::Path, cp: &ControlPlane, args: &[String]) -> Process {
    let kubeconfig = cp.kubeconfig_for("kube-system", "cluster-autoscaler").await;
    Process::new("cluster-autoscaler", program, cp.directory())
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            "--address=127.0.0.1:0".to_owned(),
            "--leader-elect=false".to_owned(),
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
    want_pods(cp, name, replicas, json!({"kubernetes.io/os": "windows"}), taint).await;
}

/// The same for any node.
pub async fn want_pods(cp: &ControlPlane, name: &str, replicas: usize, selector: Value, tolerations: Value) {
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
                    // Nothing here runs a pod, so nothing could confirm that it ended.
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "app", "image": "example.invalid/app", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
                },
            },
        },
    });
    workers::apply(cp, &[deployment]).await;
}

/// Waits until every pod of a Deployment was given a node.
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

/// Waits until the autoscaler has said of a pod of this Deployment that no node group would help.
pub async fn wait_refused(cp: &ControlPlane, name: &str, autoscaler: &Process) {
    wait_for(&format!("the autoscaler says that no group helps {name}"), LIMIT, || async {
        let events = cp.list(Kind::EVENT, Some(PODS)).await;
        let about = |event: &&Value| text(event, "/involvedObject/name").starts_with(&format!("{name}-"));
        let said = events.iter().filter(about).find(|event| text(event, "/reason") == "NotTriggerScaleUp").cloned();
        said.ok_or_else(|| autoscaler.log_end())
    })
    .await;
}
