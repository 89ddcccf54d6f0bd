//! What is assembled, field by field, and what the decisions make of it.

use serde_json::{Value, json};

use super::*;
use crate::api::condition::{ConditionType, find};
use crate::api::pool::JOINS_ANNOTATION;

fn object(status: Value) -> WindowsMachine {
    serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "u", "annotations": {VERSION_ANNOTATION: "v1.36.3", JOINS_ANNOTATION: "own/cluster"}},
        "spec": {"image": "w", "providerID": "windows://lab/3f2504e0-4f89-51d3-9a0c-0305e82c3301"}, "status": status}))
    .unwrap()
}

fn node(ready: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "win-1"}, "status": {
        "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "nodeInfo": {"kernelVersion": "10.0.20348.2700", "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}}))
    .unwrap()
}

#[test]
fn a_machine_says_what_core_would_have_said() {
    let config = serde_json::from_value(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-1"}, "spec": {}, "status": {"dataSecretName": "win-1"}}))
    .unwrap();
    let machine = machine(&object(json!({})), "own/cluster", Some(&config), Some(&node("True")));
    assert_eq!(machine.spec.version.as_deref(), Some("v1.36.3"));
    assert_eq!(machine.spec.bootstrap.data_secret_name.as_deref(), Some("win-1"));
    assert_eq!((machine.spec.infrastructure_ref.kind.as_str(), machine.spec.infrastructure_ref.name.as_str()), ("WindowsMachine", "win-1"));
    let status = machine.status.unwrap();
    assert_eq!(status.node_ref.unwrap().name, "win-1");
    assert_eq!(status.node_info.unwrap().kernel_version, "10.0.20348.2700");
    let ready = find(&status.conditions, NODE_READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.last_transition_time.0.to_string().as_str()), ("True", "2026-01-01T00:00:00Z"));
}

#[test]
fn labels_that_a_kubelet_may_not_give_itself_are_those_that_core_copies() {
    let labels = json!({"node-role.kubernetes.io/windows": "", "a.node-restriction.kubernetes.io/b": "c", "node.cluster.x-k8s.io/d": "e",
        "example.com/f": "g", "xnode-role.kubernetes.io/h": "i", "plain": "j"});
    let mut object = object(json!({}));
    object.metadata.labels = serde_json::from_value(labels).unwrap();
    let mut node = node("True");
    node.metadata.labels = Some([("node.cluster.x-k8s.io/d".to_owned(), "e".to_owned())].into());
    let lacking = json!({"a.node-restriction.kubernetes.io/b": "c", "node-role.kubernetes.io/windows": ""});
    let note = "infrastructure.cluster.x-k8s.io/labels-from-pool";
    let keys = "a.node-restriction.kubernetes.io/b,node-role.kubernetes.io/windows,node.cluster.x-k8s.io/d";
    assert_eq!(completion(&object, &node), Some(json!({"metadata": {"labels": lacking, "annotations": {note: keys}}})));
    // What the machine has no more goes, and what the Node has from others stays.
    node.metadata.annotations = Some([(note.to_owned(), "node.cluster.x-k8s.io/d".to_owned())].into());
    node.metadata.labels.as_mut().unwrap().insert("node-role.kubernetes.io/theirs".into(), String::new());
    object.metadata.labels = None;
    let dropped = json!({"labels": {"node.cluster.x-k8s.io/d": null}, "annotations": {note: null}});
    assert_eq!(completion(&object, &node), Some(json!({"metadata": dropped})));
}

#[test]
fn pods_may_come_when_the_labels_are_there() {
    let mut node = node("True");
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    node.spec = serde_json::from_value(json!({"taints": [taint("os"), taint(UNINITIALIZED_TAINT)]})).unwrap();
    let complete = json!({"spec": {"taints": [taint("os")]}});
    assert_eq!(completion(&object(json!({})), &node), Some(complete));
}

#[test]
fn a_node_that_is_gone_is_not_a_node_that_never_came() {
    let never = machine(&object(json!({})), "own/cluster", None, None).status.unwrap();
    assert!(never.node_ref.is_none() && never.conditions.is_empty());
    let joined = json!({"conditions": [{"type": ConditionType::NodeJoined.as_str(), "status": "True", "reason": "Joined", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let gone = machine(&object(joined), "own/cluster", None, None).status.unwrap();
    assert_eq!(gone.node_ref.unwrap().name, "win-1");
    assert_eq!(find(&gone.conditions, NODE_READY).map(|c| (c.status.as_str(), c.reason.as_str())), Some(("False", NODE_DELETED)));
}

#[test]
fn a_cluster_is_ready_as_soon_as_its_address_is_known() {
    let server = ControlPlaneEndpoint { host: "10.0.0.1".into(), port: 6443 };
    let unknown = cluster("own/cluster", None, None);
    assert!(unknown.infrastructure_provisioned() && unknown.control_plane_initialized() && unknown.endpoint().is_none());
    assert_eq!(cluster("own/cluster", None, Some(server.clone())).endpoint().unwrap().host, "10.0.0.1");
    let spec: PoolCluster = serde_json::from_value(json!({"endpoint": {"host": "api.example.com", "port": 443}, "serviceDomain": "corp.local",
        "serviceNetworks": ["10.96.0.0/12"]}))
    .unwrap();
    let named = cluster("own/cluster", Some(&spec), Some(server));
    assert_eq!(named.endpoint().unwrap().host, "api.example.com", "the user knows better");
    let network = named.spec.cluster_network.unwrap();
    assert_eq!((network.service_domain.as_deref(), network.services.unwrap().cidr_blocks), (Some("corp.local"), vec!["10.96.0.0/12".to_owned()]));
}
