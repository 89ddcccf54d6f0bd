//! A machine of a pool that stands alone, as if Cluster API asked for it: its Machine and its Cluster are assembled from the pool,
//! the WindowsMachine, its configuration and its Node as last seen. What decides and reports reads nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::{Map, Value, json};

use super::bootstrap::data_secret;
use super::claim::{INFRASTRUCTURE, VERSION_ANNOTATION};
use super::machine::host_name;
use super::pool::in_place;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{
    CidrBlocks, Cluster, ClusterInitialization, ClusterNetwork, ClusterSpec, ClusterStatus, Endpoint, Machine, MachineBootstrap, MachinePool,
    MachinePoolSpec, MachineSpec, MachineStatus, MachineTemplate, NODE_DELETED, NODE_READY, NodeInfo, NodeRef, Reference, UNINITIALIZED_TAINT,
};
use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::condition::{self, ConditionType};
use crate::api::machine::{TemplateMetadata, WindowsMachine};
use crate::api::pool::{PoolCluster, WindowsNodePool};

/// The Machine of a WindowsMachine; `node` is the Node with its provider ID, if there is one.
pub fn machine(object: &WindowsMachine, joins: &str, config: Option<&WindowsBootstrapConfig>, node: Option<&Node>) -> Machine {
    let meta = &object.metadata;
    let name = meta.name.clone().unwrap_or_default();
    Machine {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: meta.namespace.clone(),
            annotations: meta.annotations.clone(),
            deletion_timestamp: meta.deletion_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: MachineSpec {
            cluster_name: joins.to_owned(),
            version: meta.annotations.as_ref().and_then(|a| a.get(VERSION_ANNOTATION)).cloned(),
            bootstrap: MachineBootstrap { config_ref: None, data_secret_name: config.and_then(data_secret).map(str::to_owned) },
            infrastructure_ref: Reference { api_group: INFRASTRUCTURE.into(), kind: "WindowsMachine".into(), name },
            provider_id: object.spec.provider_id.clone(),
            ..MachineSpec::default()
        },
        status: Some(status(object, node)),
    }
}

fn status(object: &WindowsMachine, node: Option<&Node>) -> MachineStatus {
    let Some(node) = node else { return without_node(object) };
    let status = node.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").map(node_ready);
    MachineStatus {
        node_ref: Some(NodeRef { name: node.metadata.name.clone().unwrap_or_default() }),
        phase: None,
        conditions: ready.into_iter().collect(),
        node_info: status.node_info.map(|info| NodeInfo { kernel_version: info.kernel_version }),
    }
}

fn node_ready(ready: &NodeCondition) -> Condition {
    Condition {
        type_: NODE_READY.into(),
        status: ready.status.clone(),
        reason: ready.reason.clone().unwrap_or_default(),
        message: ready.message.clone().unwrap_or_default(),
        observed_generation: None,
        last_transition_time: ready.last_transition_time.clone().unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)),
    }
}

/// Nobody forgets that a machine had joined: a kubelet registers its Node once, so one that is deleted does not come back.
fn without_node(object: &WindowsMachine) -> MachineStatus {
    let told = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let Some(joined) = condition::find(told, ConditionType::NodeJoined).filter(|c| c.status == "True") else { return MachineStatus::default() };
    let deleted = Condition {
        type_: NODE_READY.into(),
        status: "False".into(),
        reason: NODE_DELETED.into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: joined.last_transition_time.clone(),
    };
    MachineStatus {
        node_ref: host_name(object).ok().map(|name| NodeRef { name: name.to_string() }),
        conditions: vec![deleted],
        ..MachineStatus::default()
    }
}

/// Domains of labels that Cluster API copies from a Machine to its Node: a kubelet may not give itself most of them.
const NODE_LABEL_DOMAINS: [&str; 3] = ["node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];

/// What completes the Node of a machine, as a merge patch: the labels that its kubelet may not give it, without those that the machine
/// has no more, and with them the end of the taint that keeps pods away until it has them. `None`: it is complete.
pub fn completion(object: &WindowsMachine, node: &Node) -> Option<Value> {
    let labels = in_place::metadata(&TemplateMetadata { labels: labels_of_node(object), ..Default::default() }, &node.metadata);
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    let tainted = taints.is_some_and(|all| all.iter().any(|t| t.key == UNINITIALIZED_TAINT));
    let left = tainted.then(|| taints.into_iter().flatten().filter(|t| t.key != UNINITIALIZED_TAINT).collect::<Vec<_>>());
    let changes = [labels.map(|labels| ("metadata", labels)), left.map(|left| ("spec", json!({ "taints": left })))];
    let patch: Map<String, Value> = changes.into_iter().flatten().map(|(field, change)| (field.to_owned(), change)).collect();
    (!patch.is_empty()).then(|| patch.into())
}

fn labels_of_node(object: &WindowsMachine) -> BTreeMap<String, String> {
    let of_node = |key: &str| {
        let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
        NODE_LABEL_DOMAINS.iter().any(|d| domain == *d || domain.strip_suffix(d).is_some_and(|rest| rest.ends_with('.')))
    };
    object.metadata.labels.iter().flatten().filter(|(key, _)| of_node(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The Cluster that is joined. Without `server`, which only the kubeconfig knows, and without an endpoint of the pool's own, it has
/// no endpoint yet.
pub fn cluster(joins: &str, spec: Option<&PoolCluster>, server: Option<ControlPlaneEndpoint>) -> Cluster {
    let endpoint = spec.and_then(|s| s.endpoint.clone()).or(server).map(|e| Endpoint { host: e.host, port: e.port });
    let blocks = |networks: Option<&Vec<String>>| networks.map(|n| CidrBlocks { cidr_blocks: n.clone() });
    let network = ClusterNetwork {
        service_domain: spec.and_then(|s| s.service_domain.clone()),
        services: blocks(spec.map(|s| &s.service_networks)),
        pods: blocks(spec.map(|s| &s.pod_networks)),
    };
    let there = ClusterInitialization { infrastructure_provisioned: Some(true), control_plane_initialized: Some(true) };
    Cluster {
        metadata: ObjectMeta { name: Some(joins.to_owned()), ..ObjectMeta::default() },
        spec: ClusterSpec { control_plane_endpoint: endpoint, cluster_network: Some(network), ..ClusterSpec::default() },
        status: Some(ClusterStatus { initialization: Some(there), conditions: Vec::new() }),
    }
}

/// The MachinePool of a pool that asks for its machines itself.
pub fn machine_pool(pool: &WindowsNodePool) -> MachinePool {
    let spec = MachineSpec { version: pool.spec.version.clone(), ..MachineSpec::default() };
    MachinePool {
        metadata: ObjectMeta { name: pool.metadata.name.clone(), namespace: pool.metadata.namespace.clone(), ..ObjectMeta::default() },
        spec: MachinePoolSpec { replicas: Some(pool.spec.replicas), template: MachineTemplate { spec }, ..MachinePoolSpec::default() },
        status: None,
    }
}

#[cfg(test)]
#[path = "standalone_tests.rs"]
mod tests;
