use serde_json::{Value, json};

use crate::api::cluster_ref::{ClusterSource, JOINS_ANNOTATION};
use crate::api::condition::{ConditionType, find};
use crate::domain::owner::*;

fn in_cluster() -> ClusterRef {
    ClusterRef { namespace: "lab".into(), source: ClusterSource::InCluster }
}

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
    let machine = NodeRequest::standalone(&object(json!({})), &in_cluster(), Some(&config), Some(&node("True")));
    assert_eq!(machine.version.as_deref(), Some("v1.36.3"));
    assert_eq!(machine.data_secret.as_deref(), Some("win-1"));
    assert_eq!((machine.infrastructure.kind.as_str(), machine.infrastructure.name.as_str()), ("WindowsMachine", "win-1"));
    assert_eq!(machine.node.as_deref().unwrap(), "win-1");
    assert_eq!(machine.kernel_version.as_deref().unwrap(), "10.0.20348.2700");
    let ready = find(&machine.conditions, NODE_READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.last_transition_time.0.to_string().as_str()), ("True", "2026-01-01T00:00:00Z"));
}

#[test]
fn a_node_that_is_gone_is_not_a_node_that_never_came() {
    let never = NodeRequest::standalone(&object(json!({})), &in_cluster(), None, None);
    assert!(never.node.is_none() && never.conditions.is_empty());
    let joined = json!({"conditions": [{"type": ConditionType::NodeJoined.as_str(), "status": "True", "reason": "Joined", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let gone = NodeRequest::standalone(&object(joined), &in_cluster(), None, None);
    assert_eq!(gone.node.as_deref(), Some("win-1"));
    assert_eq!(find(&gone.conditions, NODE_READY).map(|c| (c.status.as_str(), c.reason.as_str())), Some(("False", NODE_DELETED)));
}

#[test]
fn the_own_cluster_is_joined_only_through_a_pool_that_names_it() {
    let pool = |cluster: Value| -> WindowsNodePool {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": "win", "namespace": "lab"}, "spec": {"cluster": cluster, "template": {"machine": {"image": "w"}}}}))
        .unwrap()
    };
    let elsewhere = ClusterRef { source: ClusterSource::Kubeconfig { secret: "there".into(), key: "value".into() }, ..in_cluster() };
    for (cluster, named, expected) in [
        (in_cluster(), Some(json!({})), true),
        (in_cluster(), Some(json!({"kubeconfigSecretRef": {"name": "there"}})), false),
        (in_cluster(), Some(Value::Null), false),
        (in_cluster(), None, false),
        (elsewhere, None, true),
    ] {
        assert_eq!(may_join(&cluster, named.clone().map(pool).as_ref()), expected, "{cluster} {named:?}");
    }
}

#[test]
fn a_cluster_is_ready_as_soon_as_its_address_is_known() {
    let unknown = TargetCluster::standalone(in_cluster(), None, None);
    assert!(unknown.infrastructure_provisioned && unknown.control_plane_initialized && unknown.endpoint.is_none());
    let windows_cluster: WindowsCluster = serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "w1"}, "spec": {"cluster": {}, "hypervisors": [{"name": "h1"}], "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443},
            "components": {"mode": "Auto"}}}))
    .unwrap();
    let found = TargetCluster::standalone(in_cluster(), None, Some(&windows_cluster));
    assert_eq!((found.endpoint.clone().unwrap().host.as_str(), found.pod_network), ("10.0.0.1", None), "it is not read yet");
    assert_eq!(found.pods_per_node, None);
    assert!(found.may_use("h1") && !found.may_use("h2"));
    let read = json!({"components": {"network": {"name": "calico/vxlan", "role": "Ask", "podsPerNode": 60}}});
    let known = WindowsCluster { status: Some(serde_json::from_value(read).unwrap()), ..windows_cluster.clone() };
    let found = TargetCluster::standalone(in_cluster(), None, Some(&known));
    assert_eq!((found.pod_network, found.pods_per_node), (Some(PodNetwork::Brought), Some(60)));
    let spec: PoolCluster = serde_json::from_value(json!({"endpoint": {"host": "api.example.com", "port": 443}, "serviceDomain": "corp.local",
        "serviceNetworks": ["10.96.0.0/12"]}))
    .unwrap();
    let named = TargetCluster::standalone(in_cluster(), Some(&spec), Some(&windows_cluster));
    assert_eq!(named.endpoint.as_ref().unwrap().host, "api.example.com", "the user knows better");
    let network = named.network;
    assert_eq!((network.service_domain.as_deref(), network.services.unwrap().cidr_blocks), (Some("corp.local"), vec!["10.96.0.0/12".to_owned()]));
}

fn pool_machine() -> Machine {
    serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "ownerReferences": [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "mp", "uid": "u"}]},
        "spec": {"clusterName": "c1", "bootstrap": {"dataSecretName": ""}}}))
    .unwrap()
}

fn pool(bootstrap: Value) -> MachinePool {
    serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": {"name": "mp"},
        "spec": {"clusterName": "c1", "template": {"spec": {"bootstrap": bootstrap}}}}))
    .unwrap()
}

fn windows_machine() -> WindowsMachine {
    serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "m", "annotations": {VERSION_ANNOTATION: "v1.36.3"}}, "spec": {"image": "w"}}))
    .unwrap()
}

fn config(status: Value) -> WindowsBootstrapConfig {
    serde_json::from_value(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "m"}, "spec": {}, "status": status}))
    .unwrap()
}

#[test]
fn rule_1_8_6_the_empty_data_secret_name_of_a_machine_of_a_pool_is_filled_in() {
    assert_eq!(machine_pool_of(&pool_machine()), Some("mp"));
    let ours =
        pool(json!({"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "WindowsBootstrapConfig", "name": "c"}, "dataSecretName": "c"}));
    let foreign = pool(json!({"dataSecretName": "shared"}));
    let secret = |pool, status: Option<Value>| {
        let config = status.map(config);
        NodeRequest::of_pool_machine(&pool_machine(), &windows_machine(), Some(pool), config.as_ref()).data_secret
    };
    assert_eq!(secret(&ours, None), None, "the Secret of the pool's own configuration lets no machine join");
    assert_eq!(secret(&ours, Some(json!({}))), None);
    assert_eq!(secret(&ours, Some(json!({"dataSecretName": "m"}))).as_deref(), Some("m"));
    assert_eq!(secret(&foreign, None).as_deref(), Some("shared"));
    assert_eq!(NodeRequest::of_pool_machine(&pool_machine(), &windows_machine(), None, None).version.as_deref(), Some("v1.36.3"));
}

#[test]
fn a_node_counts_as_not_ready_since_it_was_seen_so_whatever_its_own_clock_says() {
    let seen: jiff::Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
    let since = |status: &str| {
        let request = NodeRequest::standalone(&object(json!({})), &in_cluster(), None, Some(&node(status))).seen_unready(Some(seen));
        request.conditions[0].last_transition_time.0.to_string()
    };
    assert_eq!((since("Unknown").as_str(), since("True").as_str()), ("2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z"));
}

#[test]
fn a_machine_with_another_uid_is_not_the_owner() {
    let machine = |uid: &str| -> Machine {
        serde_json::from_value(
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "uid": uid}, "spec": {}}),
        )
        .unwrap()
    };
    let reference = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "u", "controller": true}]);
    let owners: Vec<OwnerReference> = serde_json::from_value(reference).unwrap();
    assert!(Owner::of(Some(&owners), Some(&machine("u"))).request().is_some());
    assert!(Owner::of(Some(&owners), Some(&machine("another"))).request().is_none());
}
