//! The fields of Cluster API (core v1beta2) that CAPW reads. Whole objects are never written with these types: all other fields would be lost.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::cluster::ControlPlaneEndpoint;
use super::condition;

/// Label on everything that belongs to a Cluster: the Cluster's name.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation (any value) that stops every reconcile of one object, including its deletion.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation on an infrastructure cluster whose status is managed externally.
pub const MANAGED_BY_ANNOTATION: &str = "cluster.x-k8s.io/managed-by";
/// Label that marks a Machine of a control plane.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// Label on the machines of a MachinePool: the name of the MachinePool, see [`label_value`].
pub const POOL_NAME_LABEL: &str = "cluster.x-k8s.io/pool-name";
/// Label of a pod that a drain treats differently: `skip` or `wait-completed`.
/// <https://cluster-api.sigs.k8s.io/tasks/automated-machine-management/machine_deletions>
pub const DRAIN_LABEL: &str = "cluster.x-k8s.io/drain";
/// Label on the machines of a MachineDeployment: the name of the MachineDeployment.
pub const DEPLOYMENT_NAME_LABEL: &str = "cluster.x-k8s.io/deployment-name";
/// Annotation (any value) on a Machine that is removed first when there are too many Machines.
pub const DELETE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";

/// Cluster API's finalizer on a Machine.
pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";

/// Annotation (any value but `false`) on a MachinePool whose infrastructure decides the number of machines.
pub const REPLICAS_MANAGED_BY_ANNOTATION: &str = "cluster.x-k8s.io/replicas-managed-by";
/// Taint of a Node until Cluster API has copied the labels of the Machine to the Node.
pub const UNINITIALIZED_TAINT: &str = "node.cluster.x-k8s.io/uninitialized";
/// Condition of a Machine: its Node is Ready.
pub const NODE_READY: &str = "NodeReady";
/// Reason of [`NODE_READY`]: the Node of a joined machine was deleted.
pub const NODE_DELETED: &str = "NodeDeleted";
/// Condition of a Machine, `False` while a MachineHealthCheck wants it replaced.
pub const OWNER_REMEDIATED: &str = "OwnerRemediated";
/// Condition of a Machine: the result of the MachineHealthCheck.
pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
/// Condition of a MachineDeployment with too few machines. The message may give the cause.
pub const SCALING_UP: &str = "ScalingUp";
/// Label selected by `--watch-filter`.
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Type of the Secrets that Cluster API and its providers exchange.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// API group of Cluster API's core kinds.
pub const GROUP: &str = "cluster.x-k8s.io";

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta2", kind = "Cluster", namespaced, schema = "disabled", status = "ClusterStatus")]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    #[serde(default)]
    pub paused: Option<bool>,
    #[serde(default)]
    pub control_plane_endpoint: Option<Endpoint>,
    #[serde(default)]
    pub control_plane_ref: Option<Reference>,
    #[serde(default)]
    pub infrastructure_ref: Option<Reference>,
    #[serde(default)]
    pub cluster_network: Option<ClusterNetwork>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    #[serde(default)]
    pub initialization: Option<ClusterInitialization>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    #[serde(default)]
    pub infrastructure_provisioned: Option<bool>,
    #[serde(default)]
    pub control_plane_initialized: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetwork {
    #[serde(default)]
    pub service_domain: Option<String>,
    #[serde(default)]
    pub services: Option<CidrBlocks>,
    #[serde(default)]
    pub pods: Option<CidrBlocks>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CidrBlocks {
    #[serde(default)]
    pub cidr_blocks: Vec<String>,
}

/// The endpoint of an API server. `host` is empty and `port` is 0 while the endpoint of a Cluster is unknown.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Endpoint {
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub port: i32,
}

impl From<ControlPlaneEndpoint> for Endpoint {
    fn from(endpoint: ControlPlaneEndpoint) -> Self {
        Self { host: endpoint.host, port: endpoint.port }
    }
}

/// A reference without version and namespace. The object is in the same namespace, and the contract label of its CRD gives the version.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    #[serde(default)]
    pub api_group: String,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub name: String,
}

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta2", kind = "Machine", namespaced, schema = "disabled", status = "MachineStatus")]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    #[serde(default)]
    pub cluster_name: String,
    /// The Kubernetes version with the leading `v`, e.g. `v1.36.3`.
    #[serde(default)]
    pub version: Option<String>,
    #[serde(default)]
    pub bootstrap: MachineBootstrap,
    #[serde(default)]
    pub infrastructure_ref: Reference,
    #[serde(default)]
    pub failure_domain: Option<String>,
    #[serde(default, rename = "providerID")]
    pub provider_id: Option<String>,
    #[serde(default)]
    pub min_ready_seconds: Option<i64>,
    /// Time limits of the deletion; core sets defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineBootstrap {
    #[serde(default)]
    pub config_ref: Option<Reference>,
    #[serde(default)]
    pub data_secret_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    #[serde(default)]
    pub node_ref: Option<NodeRef>,
    #[serde(default)]
    pub phase: Option<String>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub node_info: Option<NodeInfo>,
}

/// The part of a Node's `status.nodeInfo` that we read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// The build of Windows on a Windows node, e.g. `10.0.20348.2700`.
    #[serde(default)]
    pub kernel_version: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct NodeRef {
    #[serde(default)]
    pub name: String,
}

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDeployment",
    namespaced,
    schema = "disabled",
    status = "MachineDeploymentStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentSpec {
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default)]
    pub replicas: Option<i32>,
    #[serde(default)]
    pub template: MachineTemplate,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachinePool", namespaced, schema = "disabled", status = "MachinePoolStatus")]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolSpec {
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default)]
    pub replicas: Option<i32>,
    #[serde(default)]
    pub template: MachineTemplate,
    #[serde(default)]
    pub failure_domains: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplate {
    #[serde(default)]
    pub spec: MachineSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolStatus {
    #[serde(default)]
    pub phase: Option<String>,
}

impl Cluster {
    pub fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }
    /// The name of the Cluster if it is paused, which pauses every object that belongs to it.
    pub fn paused_name(&self) -> Option<&str> {
        self.metadata.name.as_deref().filter(|_| self.is_paused())
    }
    /// Whether the infrastructure cluster is ready (or none is needed).
    pub fn infrastructure_provisioned(&self) -> bool {
        self.initialization().and_then(|i| i.infrastructure_provisioned) == Some(true)
    }
    pub fn control_plane_initialized(&self) -> bool {
        let status = self.status.as_ref();
        self.initialization().and_then(|i| i.control_plane_initialized) == Some(true)
            || status.is_some_and(|s| condition::is_true(&s.conditions, "ControlPlaneInitialized"))
    }
    /// The endpoint, once it is known.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.spec.control_plane_endpoint.as_ref().filter(|e| !e.host.is_empty() && e.port > 0)
    }
    /// The name of the WindowsCluster, if the Cluster's infrastructure is a WindowsCluster.
    pub fn windows_cluster(&self) -> Option<&str> {
        self.spec.infrastructure_ref.as_ref().filter(|reference| reference.kind == "WindowsCluster").map(|reference| reference.name.as_str())
    }
    fn initialization(&self) -> Option<&ClusterInitialization> {
        self.status.as_ref()?.initialization.as_ref()
    }
}

impl Machine {
    /// Whether this is a control plane machine, which we do not provide.
    pub fn is_control_plane(&self) -> bool {
        self.metadata.labels.as_ref().is_some_and(|l| l.contains_key(CONTROL_PLANE_LABEL))
    }
}

impl MachinePool {
    /// Whether the infrastructure decides the number of machines and the MachinePool only reports it.
    pub fn is_scaled_by_infrastructure(&self) -> bool {
        self.metadata.annotations.as_ref().and_then(|a| a.get(REPLICAS_MANAGED_BY_ANNOTATION)).is_some_and(|value| value != "false")
    }
}

/// Returns the owner that is a Cluster API Machine, whatever version the reference names.
pub fn machine_owner(owners: Option<&Vec<OwnerReference>>) -> Option<&OwnerReference> {
    owner(owners, GROUP, "Machine")
}

/// Returns the owner of this group and kind, whatever version the reference names.
pub fn owner<'a>(owners: Option<&'a Vec<OwnerReference>>, group: &str, kind: &str) -> Option<&'a OwnerReference> {
    owners?.iter().find(|o| o.kind == kind && o.api_version.split('/').next() == Some(group))
}

/// Converts a name to a label value: the name itself, or a hash if the name is too long, as in Cluster API (`format.MustFormatValue`).
pub fn label_value(name: &str) -> String {
    // Object names consist of lower case letters, digits, - and ., and begin and end with a letter or digit: only the length can be invalid.
    if name.len() <= 63 {
        return name.to_owned();
    }
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("hash_{}_z", URL_SAFE_NO_PAD.encode(hash.to_be_bytes()))
}

/// The name of an object's Cluster. Cluster API labels the objects that it creates; the Cluster owns their templates and the objects that it names.
pub fn cluster_of(meta: &ObjectMeta) -> Option<&str> {
    let owner = owner(meta.owner_references.as_ref(), GROUP, "Cluster").map(|owner| owner.name.as_str());
    owner.or_else(|| cluster_name(meta.labels.as_ref()))
}

/// The name of the Cluster that an object belongs to, from its label.
pub fn cluster_name(labels: Option<&BTreeMap<String, String>>) -> Option<&str> {
    labels?.get(CLUSTER_NAME_LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are the output of Go's `format.MustFormatValue` of Cluster API 1.14.2 for these names.
    #[test]
    fn rule_4_3_a_long_name_becomes_the_label_value_that_core_computes() {
        assert_eq!(label_value("windows"), "windows");
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        assert_eq!(label_value(&"a".repeat(64)), "hash_2W8PhQ_z");
        assert_eq!(label_value(&format!("{}.example", "windows-pool-".repeat(6))), "hash_w7efsw_z");
    }
}
