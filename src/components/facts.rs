//! Which changes of an object may change what is read of it.

use kube::api::ObjectMeta;

use super::linux_side::{ANNOTATIONS, NODE_ARGUMENTS};
use crate::api::bootstrap_config::{BUILD_LABEL, HYPER_V_LABEL};

/// What the metadata of an object of that kind tells of its content: while this stays the same, so does all that is read. Kubelets write their
/// Nodes all the time; of those, only what networks and k3s write counts, and which Windows it is.
pub fn facts(kind: &str, meta: &ObjectMeta) -> String {
    if kind == "Node" {
        let is_read = |key: &str| NODE_ARGUMENTS.contains(&key) || ANNOTATIONS.iter().any(|(start, _)| key.starts_with(start));
        let annotations: Vec<_> = meta.annotations.iter().flatten().filter(|(key, _)| is_read(key)).collect();
        let system = ["kubernetes.io/os", BUILD_LABEL, HYPER_V_LABEL];
        let labels: Vec<_> = meta.labels.iter().flatten().filter(|(key, _)| system.contains(&key.as_str())).collect();
        return format!("{:?} {labels:?} {annotations:?}", meta.uid);
    }
    // Kinds without a generation change as a whole, and of these the status is read.
    let of_status = ["Pod", "TigeraStatus"].contains(&kind);
    let version = meta.generation.filter(|_| !of_status).map_or_else(|| format!("{:?}", meta.resource_version), |generation| generation.to_string());
    format!("{:?} {version} {:?}", meta.uid, meta.annotations)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
}
