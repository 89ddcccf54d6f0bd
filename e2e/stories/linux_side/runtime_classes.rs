//! The part of the story about RuntimeClasses: they exist with a pool, the real API server and scheduler place pods by them, and they are removed
//! with the last pod.

use serde_json::{Value, json};

use super::{BROUGHT, COMPONENTS, LIMIT, PODS, pod_is_ready, probes, says, verified};
use crate::workers::Workers;
use crate::world::{ControlPlane, Kind, step, text, wait_for};

pub const RUNTIME_CLASSES: Kind = Kind::new("node.k8s.io/v1", "runtimeclasses");
/// A pod that no node can take.
const WAITING: &str = "waiting";

/// Waits until the RuntimeClasses that CAPW reports, and the existing ones, are exactly these.
async fn classes(cp: &ControlPlane, name: &str, expected: &[&str]) {
    wait_for(&format!("the RuntimeClasses are {expected:?}"), LIMIT, || async {
        let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.ok_or("no WindowsCluster")?;
        let said = object["status"]["components"]["objects"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let said: Vec<&str> = said.filter_map(|said| said.strip_prefix("RuntimeClass ")).collect();
        let found = cp.list(RUNTIME_CLASSES, None).await;
        let mut there: Vec<&str> = found.iter().map(|class| text(class, "/metadata/name")).collect();
        there.sort_unstable();
        if said == expected && there == expected { Ok(()) } else { Err(format!("{said:?}, {there:?}")) }
    })
    .await;
}

/// Covers the RuntimeClasses of a new pool. `node`: a node with Windows Server 2022, whose network works.
pub async fn they_come_with_a_pool(cp: &ControlPlane, workers: &Workers, name: &str, node: &str) {
    classes(cp, name, &["windows-2022"]).await;

    let foreign = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "windows-2025"}, "handler": "runc"});
    cp.apply_objects(&[foreign]).await;
    let newer = newer(workers);
    cp.apply_objects(&[newer.machine_template(), newer.bootstrap_template(), deployment(&newer, 0)]).await;
    says(cp, name, COMPONENTS, "NameTaken", &["RuntimeClass windows-2025 is there already"]).await;
    cp.delete(RUNTIME_CLASSES, "windows-2025").await;
    classes(cp, name, &["windows-2022", "windows-2025", "windows-2025-hyperv"]).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    step("a pool has its RuntimeClasses before it has a node");

    cp.apply_objects(&[deployment(&newer, 1)]).await;
    let new_node = wait_for("a node with Windows Server 2025", LIMIT, || async {
        let nodes = cp.list(Kind::NODE, None).await;
        let is_new = |node: &&Value| text(node, "/metadata/labels/node.kubernetes.io~1windows-build") == "10.0.26100";
        nodes.iter().find(is_new).map(|node| text(node, "/metadata/name").to_owned()).ok_or("there is none")
    })
    .await;
    for part in ["flannel", "kube-proxy"] {
        pod_is_ready(cp, BROUGHT, part, &new_node).await;
    }
    probes::it_reaches_what_pods_need(cp, name, &new_node).await;
    verified(cp, name, "2/2").await;

    let pod = |pod: &str, class: &str, selector: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": workers.namespace},
            "spec": {"runtimeClassName": class, "nodeSelector": selector, "containers": [{"name": "a", "image": "registry.example.com/a:v1"}]}})
    };
    wait_for("pods can be made in the namespace", LIMIT, || async {
        let account = cp.get(Kind::new("v1", "serviceaccounts"), &workers.name("default")).await;
        account.ok_or("its ServiceAccount is not there yet")
    })
    .await;
    let classes =
        [("older", "windows-2022", node), ("newer", "windows-2025", new_node.as_str()), ("isolated", "windows-2025-hyperv", new_node.as_str())];
    let mut pods: Vec<Value> = classes.iter().map(|(name, class, _)| pod(name, class, json!({}))).collect();
    pods.push(pod(WAITING, "windows-2025", json!({"example.com/none": "there"})));
    cp.apply_objects(&pods).await;
    for (name, class, node) in classes {
        let pod = cp
            .wait_object(PODS, &workers.name(name), &format!("on {node}, as {class} says"), LIMIT, |pod| {
                (!text(pod, "/spec/nodeName").is_empty()).then(|| pod.clone())
            })
            .await;
        assert_eq!(text(&pod, "/spec/nodeName"), node, "{class}");
        let tolerations = pod["spec"]["tolerations"].as_array().expect("tolerations");
        assert!(tolerations.contains(&json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"})), "{tolerations:?}");
        let overhead = if class.ends_with("-hyperv") { json!({"cpu": "250m", "memory": "1Gi"}) } else { Value::Null };
        assert_eq!(pod["spec"]["overhead"], overhead, "{class}");
    }
    step("pods are where their RuntimeClasses say, without a word of their own");

    // No kubelet ends these pods.
    let ended = classes.map(|(name, _, _)| name);
    let arguments = ["-n", workers.namespace.as_str(), "delete", "pods", "--force", "--grace-period=0"];
    cp.kubectl(&[&arguments[..], &ended[..]].concat()).await;
    cp.delete(Kind::MACHINE_DEPLOYMENT, &workers.name(text(&deployment(&newer, 0), "/metadata/name"))).await;
    cp.delete(Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE, &workers.name(&newer.bootstrap_template)).await;
    cp.wait_gone(Kind::NODE, &new_node, LIMIT).await;
    self::classes(cp, name, &["windows-2022", "windows-2025"]).await;
    step("of the pool's RuntimeClasses, that of a pod that waits is left");
    cp.kubectl(&["-n", &workers.namespace, "delete", "pod", WAITING, "--force", "--grace-period=0"]).await;
}

/// The RuntimeClasses are removed at CAPW's next poll of the cluster.
pub async fn they_go_with_their_last_pod(cp: &ControlPlane, name: &str) {
    classes(cp, name, &["windows-2022"]).await;
    step("the RuntimeClass went after its last pod");
}

/// Machines of the same cluster with Windows Server 2025 and Hyper-V isolation.
fn newer(workers: &Workers) -> Workers {
    let mut newer = Workers { template: "newer".to_owned(), bootstrap_template: "newer".to_owned(), ..workers.clone() };
    newer.machine["image"] = json!("windows-server-2025");
    newer.machine["nestedVirtualization"] = json!(true);
    newer.bootstrap["windowsRelease"] = json!("2025");
    newer.bootstrap["windows"] = json!({"hyperVIsolation": true});
    newer
}

fn deployment(workers: &Workers, replicas: usize) -> Value {
    let mut deployment = Workers { replicas, ..workers.clone() }.machine_deployment();
    deployment["metadata"]["name"] = json!("newer");
    deployment
}
