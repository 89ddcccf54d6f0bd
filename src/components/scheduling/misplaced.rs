//! Compares the node selection and the tolerations of DaemonSets with the labels and taints of the nodes.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint};
use serde_json::{Value, json};

use super::rules::{not_tolerated, selects};
use crate::api::bootstrap_config;
use crate::api::capi::UNINITIALIZED_TAINT;
use crate::api::condition::Reason;
use crate::api::decode::from_value;
use crate::components::finding::{Finding, Patch};
use crate::components::linux_side::is_windows;
use crate::components::manager::manager;
use crate::components::objects::Objects;
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::OURS;

/// Prefixes of the keys of taints that other programs add and remove automatically.
const TRANSIENT: [&str; 6] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    UNINITIALIZED_TAINT,
];
const SYSTEM: &str = "kubernetes.io/os";
const WINDOWS: &str = "windows";
/// The most nodes that a message names.
const NAMED: usize = 3;

/// The nodes to check. Before the first Windows node joins: a node with the labels that every kubelet sets, and the default taint of CAPW's nodes.
struct Nodes {
    windows: Vec<Node>,
    linux: Vec<Node>,
    /// Whether no Windows node has joined yet.
    is_ahead: bool,
}

fn node(system: &str, taints: Value) -> Option<Node> {
    let labels = json!({SYSTEM: system, "kubernetes.io/arch": "amd64"});
    from_value(&json!({"metadata": {"labels": labels}, "spec": {"taints": taints}})).ok()
}

impl Nodes {
    fn of(objects: &Objects<'_>) -> Self {
        let (windows, linux): (Vec<_>, Vec<_>) = objects.of("", "Node").into_iter().partition(is_windows);
        let typed = |places: Vec<Place<'_>>| places.iter().filter_map(|place| from_value(place.value()).ok()).collect::<Vec<Node>>();
        let (windows, linux) = (typed(windows), typed(linux));
        let is_ahead = windows.is_empty();
        let windows = if is_ahead { node(WINDOWS, json!([bootstrap_config::Taint::windows()])).into_iter().collect() } else { windows };
        let linux = if linux.is_empty() { node("linux", json!([])).into_iter().collect() } else { linux };
        Self { windows, linux, is_ahead }
    }
}

fn lasting(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.into_iter().filter(|taint| !TRANSIENT.iter().any(|start| taint.key.starts_with(start))).collect()
}

/// Returns the problems of the DaemonSets among these objects, sorted by name.
pub fn misplaced(objects: &[Value]) -> Vec<Finding> {
    let objects = Objects::new(objects);
    let nodes = Nodes::of(&objects);
    let mut found: Vec<Finding> = objects.of("apps", "DaemonSet").iter().filter_map(|set| finding(set.value(), &nodes)).collect();
    found.sort_by(|one, other| (one.reason, &one.object).cmp(&(other.reason, &other.object)));
    found
}

fn finding(object: &Value, nodes: &Nodes) -> Option<Finding> {
    let set: DaemonSet = from_value(object).ok()?;
    let is_ours = set.metadata.labels.as_ref().and_then(|labels| labels.get(OURS.0)).is_some_and(|value| value == OURS.1);
    let pod = set.spec.template.spec.filter(|_| !is_ours)?;
    let chosen: Vec<&Node> = nodes.windows.iter().filter(|node| selects(&pod, node)).collect();
    if chosen.is_empty() {
        return None;
    }
    let is_for_linux = nodes.linux.iter().any(|node| selects(&pod, node)) || pod.os.as_ref().is_some_and(|os| os.name == "linux");
    let free: Vec<&Node> = chosen.iter().copied().filter(|node| not_tolerated(&pod, &lasting(node)).is_empty()).collect();
    match (is_for_linux, free.is_empty()) {
        (true, false) => Some(on_windows(object, &free, nodes.is_ahead)),
        (false, true) => Some(shut_out(object, &pod, &chosen)),
        _ => None,
    }
}

/// Returns the patch, unless a tool would undo it, and the remedy.
fn remedy(object: &Value, what: &str, patch: Value) -> (Option<Patch>, String) {
    match object.get("metadata").and_then(manager) {
        Some(manager) => (None, format!("{what}; {manager} manages it, so do it there")),
        None => (Some(Patch::Merge(json!({"spec": {"template": {"spec": patch}}}))), what.to_owned()),
    }
}

fn on_windows(object: &Value, nodes: &[&Node], is_ahead: bool) -> Finding {
    let (patch, remedy) = remedy(object, &format!("add the node selector {SYSTEM}: linux"), json!({"nodeSelector": {SYSTEM: "linux"}}));
    let names: Vec<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    let place = match (is_ahead, names.split_at_checked(NAMED)) {
        (true, _) => "each Windows node that joins".to_owned(),
        (false, Some((first, rest))) if !rest.is_empty() => format!("Windows nodes: {} and {} more", first.join(", "), rest.len()),
        (false, _) => format!("Windows nodes: {}", names.join(", ")),
    };
    Finding {
        reason: Reason::LinuxOnWindows,
        object: ObjectRef::of(object),
        field: "spec.template.spec.nodeSelector".into(),
        message: format!("it does not ask for Linux, and tolerates the taints of Windows nodes: its pods hang on {place}"),
        patch,
        remedy,
    }
}

fn shut_out(object: &Value, pod: &PodSpec, nodes: &[&Node]) -> Finding {
    let mut taints: Vec<Taint> = nodes.iter().flat_map(|node| not_tolerated(pod, &lasting(node)).into_iter().cloned().collect::<Vec<_>>()).collect();
    taints.dedup();
    let named: Vec<String> =
        taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value.clone().unwrap_or_default(), taint.effect)).collect();
    let mut tolerations = json!(pod.tolerations.clone().unwrap_or_default());
    let more = taints.iter().map(|taint| json!({"key": taint.key, "operator": "Exists", "effect": taint.effect}));
    if let Some(tolerations) = tolerations.as_array_mut() {
        tolerations.extend(more);
    }
    let what = format!("add a toleration of {}", named.join(" and "));
    let (patch, remedy) = remedy(object, &what, json!({"tolerations": tolerations}));
    Finding {
        reason: Reason::WindowsPodsShutOut,
        object: ObjectRef::of(object),
        field: "spec.template.spec.tolerations".into(),
        message: format!("it asks for Windows nodes, and does not tolerate their taint {}: it has no pod on any of them", named.join(" and ")),
        patch,
        remedy,
    }
}
