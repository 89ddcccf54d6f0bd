//! The facts that are read from an object, and the changes that may affect them.

use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::linux_side::{ANNOTATIONS, NODE_ARGUMENTS};
use super::place::is_of_kind;
use crate::api::bootstrap_config::{BUILD_LABEL, HYPER_V_LABEL};

/// A fingerprint of an object's metadata: while it stays the same, all facts that are read from the object stay the same. Kubelets update their Nodes
/// constantly; of a Node, only the annotations of networks and k3s and the Windows version count.
pub fn facts(kind: &str, meta: &ObjectMeta) -> String {
    if kind == "Node" {
        let annotations: Vec<_> = meta.annotations.iter().flatten().filter(|(key, _)| is_read_of_node(key)).collect();
        let system = ["kubernetes.io/os", BUILD_LABEL, HYPER_V_LABEL];
        let labels: Vec<_> = meta.labels.iter().flatten().filter(|(key, _)| system.contains(&key.as_str())).collect();
        return format!("{:?} {labels:?} {annotations:?}", meta.uid);
    }
    // Kinds without a generation change as a whole. For these kinds the status is read.
    let of_status = ["Pod", "TigeraStatus"].contains(&kind);
    let version = meta.generation.filter(|_| !of_status).map_or_else(|| format!("{:?}", meta.resource_version), |generation| generation.to_string());
    format!("{:?} {version} {:?}", meta.uid, meta.annotations)
}

/// Whether this annotation of a Node is used.
fn is_read_of_node(key: &str) -> bool {
    NODE_ARGUMENTS.contains(&key) || ANNOTATIONS.iter().any(|(start, _)| key.starts_with(start))
}

/// Removes unused fields from the kinds of which a cluster has thousands of objects: Nodes, and pods of DaemonSets.
pub fn needed(kind: &str, mut object: Value) -> Value {
    match kind {
        "Node" => {
            if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.retain(|key, _| is_read_of_node(key));
            }
            keep(&mut object, "status", &["addresses", "nodeInfo"]);
        }
        "Pod" if is_of_set(&object) => {
            keep(&mut object, "spec", &["nodeName"]);
            // The states of the containers are needed only while the pod is not ready.
            match is_ready(&object) {
                true => keep_ready(&mut object),
                false => keep(&mut object, "status", &["phase", "conditions", "containerStatuses"]),
            }
        }
        _ => return object,
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Removes all but these fields from a field of the object.
fn keep(object: &mut Value, field: &str, these: &[&str]) {
    if let Some(fields) = object.get_mut(field).and_then(Value::as_object_mut) {
        fields.retain(|key, _| these.contains(&key.as_str()));
    }
}

/// Reduces the status of a pod to its Ready condition.
fn keep_ready(pod: &mut Value) {
    if let Some(fields) = pod.as_object_mut() {
        fields.insert("status".to_owned(), json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    }
}

fn is_of_set(pod: &Value) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| is_of_kind(owner, "DaemonSet"))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is = |condition: &Value, field: &str, value: &str| condition.get(field).is_some_and(|found| found == value);
    conditions.into_iter().flatten().any(|condition| is(condition, "type", "Ready") && is(condition, "status", "True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_all_the_time_is_no_change() {
        let facts = |kind: &str, meta: &Value| facts(kind, &serde_json::from_value(meta.clone()).unwrap());
        let node = json!({"name": "n", "uid": "1", "resourceVersion": "7", "labels": {"kubernetes.io/os": "linux", "zone": "a"}, "annotations": {
            "flannel.alpha.coreos.com/backend-type": "vxlan", "k3s.io/node-args": "[]", "management.cattle.io/pod-limits": "{}"}});
        let set = json!({"name": "s", "namespace": "a", "uid": "1", "resourceVersion": "7", "generation": 1});
        let map = json!({"name": "s", "namespace": "a", "uid": "1", "resourceVersion": "7"});
        for (kind, before, change, counts) in [
            ("Node", &node, json!({"resourceVersion": "8"}), false),
            ("Node", &node, json!({"annotations": {"management.cattle.io/pod-limits": "{\"cpu\": 1}"}}), false),
            ("Node", &node, json!({"labels": {"zone": "b"}}), false),
            ("Node", &node, json!({"annotations": {"flannel.alpha.coreos.com/backend-type": "host-gw"}}), true),
            ("Node", &node, json!({"annotations": {"k3s.io/node-args": "[\"server\"]"}}), true),
            ("Node", &node, json!({"annotations": {"k8s.ovn.org/node-subnets": "{}"}}), true),
            ("Node", &node, json!({"annotations": {"flannel.alpha.coreos.com/backend-type": null}}), true),
            ("Node", &node, json!({"labels": {"kubernetes.io/os": "windows"}}), true),
            ("Node", &node, json!({"labels": {"node.kubernetes.io/windows-build": "10.0.20348"}}), true),
            ("Node", &node, json!({"uid": "2"}), true),
            ("DaemonSet", &set, json!({"resourceVersion": "8"}), false),
            ("DaemonSet", &set, json!({"resourceVersion": "8", "generation": 2}), true),
            ("DaemonSet", &set, json!({"uid": "2"}), true),
            ("FelixConfiguration", &set, json!({"annotations": {"operator.tigera.io/vxlanPort": "4789"}}), true),
            ("ConfigMap", &map, json!({"resourceVersion": "8"}), true),
            ("Pod", &set, json!({"resourceVersion": "8"}), true),
            ("TigeraStatus", &set, json!({"resourceVersion": "8"}), true),
        ] {
            let mut after = before.clone();
            json_patch::merge(&mut after, &change);
            assert_eq!(facts(kind, before) != facts(kind, &after), counts, "{kind} {change}");
        }
    }

    #[test]
    fn what_is_not_read_of_nodes_and_pods_of_daemon_sets_is_dropped() {
        let node = |annotations: Value, status: Value| {
            json!({"metadata": {"name": "n", "uid": "1", "labels": {"zone": "a"}, "annotations": annotations}, "spec": {"podCIDR": "10.0.0.0/24"},
                "status": status})
        };
        let pod = |of: &str, spec: Value, status: Value| json!({"metadata": {"name": "p", "ownerReferences": [{"kind": of, "name": "o"}]}, "spec": spec, "status": status});
        let (read, addresses) = ("flannel.alpha.coreos.com/backend-type", json!([{"type": "InternalIP", "address": "10.0.0.1"}]));
        let (spec, bound) = (json!({"nodeName": "n", "containers": [{"name": "c"}]}), json!({"nodeName": "n"}));
        let status = |ready: &str| {
            let conditions = json!([{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]);
            json!({"phase": "Running", "qosClass": "Burstable", "conditions": conditions, "containerStatuses": [{"name": "c"}]})
        };
        let mut waiting = status("False");
        waiting.as_object_mut().unwrap().remove("qosClass");
        for (kind, object, expected) in [
            (
                "Node",
                node(
                    json!({read: "vxlan", "volumes": "x"}),
                    json!({"addresses": addresses, "conditions": [{"type": "Ready"}], "capacity": {"cpu": "4"}}),
                ),
                node(json!({read: "vxlan"}), json!({"addresses": addresses})),
            ),
            (
                "Pod",
                pod("DaemonSet", spec.clone(), status("True")),
                pod("DaemonSet", bound.clone(), json!({"conditions": [{"type": "Ready", "status": "True"}]})),
            ),
            ("Pod", pod("DaemonSet", spec.clone(), status("False")), pod("DaemonSet", bound, waiting)),
            ("Pod", pod("Job", spec.clone(), status("True")), pod("Job", spec.clone(), status("True"))),
            ("DaemonSet", pod("DaemonSet", spec.clone(), status("True")), pod("DaemonSet", spec.clone(), status("True"))),
        ] {
            let mut managed = object.clone();
            managed["metadata"]["managedFields"] = json!([{"manager": "helm"}]);
            let (found, is_changed) = (needed(kind, managed), object != expected);
            assert_eq!(needed(kind, object), expected, "{kind}");
            assert_eq!(found["metadata"]["managedFields"].is_null(), is_changed, "{kind}: field managers are read of others");
        }
    }
}
