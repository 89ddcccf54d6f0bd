use serde_json::{Value, json};

use crate::api::cluster_ref::JOINS_ANNOTATION;
use crate::domain::identity::VERSION_ANNOTATION;
use crate::kinds::machine::decide::completion::*;

fn object(status: Value) -> WindowsMachine {
    serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "u", "annotations": {VERSION_ANNOTATION: "v1.36.3", JOINS_ANNOTATION: "own/cluster"}},
        "spec": {"image": "w", "providerID": "windows://lab/3f2504e0-4f89-51d3-9a0c-0305e82c3301"}, "status": status}))
    .unwrap()
}

#[test]
fn labels_that_a_kubelet_may_not_give_itself_are_those_that_core_copies() {
    let labels = json!({"node-role.kubernetes.io/windows": "", "a.node-restriction.kubernetes.io/b": "c", "node.cluster.x-k8s.io/d": "e",
        "example.com/f": "g", "xnode-role.kubernetes.io/h": "i", "plain": "j"});
    let mut object = object(json!({}));
    object.metadata.labels = serde_json::from_value(labels).unwrap();
    let mut node: Node = serde_json::from_value(json!({"metadata": {"name": "win-1"}})).unwrap();
    node.metadata.labels = Some([("node.cluster.x-k8s.io/d".to_owned(), "e".to_owned())].into());
    let lacking = json!({"a.node-restriction.kubernetes.io/b": "c", "node-role.kubernetes.io/windows": ""});
    let note = "infrastructure.cluster.x-k8s.io/labels-from-pool";
    let keys = "a.node-restriction.kubernetes.io/b,node-role.kubernetes.io/windows,node.cluster.x-k8s.io/d";
    assert_eq!(completion(&object, &node), Some(json!({"metadata": {"labels": lacking, "annotations": {note: keys}}})));
    // A label that the machine has lost is removed from the Node, and labels from other sources stay.
    node.metadata.annotations = Some([(note.to_owned(), "node.cluster.x-k8s.io/d".to_owned())].into());
    node.metadata.labels.as_mut().unwrap().insert("node-role.kubernetes.io/theirs".into(), String::new());
    object.metadata.labels = None;
    let dropped = json!({"labels": {"node.cluster.x-k8s.io/d": null}, "annotations": {note: null}});
    assert_eq!(completion(&object, &node), Some(json!({"metadata": dropped})));
}

#[test]
fn pods_may_come_when_the_labels_are_there() {
    let mut node: Node = serde_json::from_value(json!({"metadata": {"name": "win-1"}})).unwrap();
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    node.spec = serde_json::from_value(json!({"taints": [taint("os"), taint(UNINITIALIZED_TAINT)]})).unwrap();
    let complete = json!({"spec": {"taints": [taint("os")]}});
    assert_eq!(completion(&object(json!({})), &node), Some(complete));
}
