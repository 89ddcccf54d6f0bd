//! The observed state of a hypervisor.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Observed state.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsHypervisorStatus {
    /// Name of the driver, e.g. `simulated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Identity of the endpoint at first contact. CAPW sends no requests to an endpoint with another identity: the absence of VMs there would prove nothing.
    #[serde(default, rename = "endpointID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub endpoint_id: Option<String>,
    /// The version that the endpoint reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Total capacity of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<HypervisorCapacity>,
    /// Resources that VMs with CAPW's mark take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<HypervisorUse>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reachable, InventoryClean and Paused.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

/// Capacity of a hypervisor endpoint. Fields that the endpoint does not report are absent.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorCapacity {
    /// Virtual processors for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<i64>,
    /// Memory for machines, e.g. `256Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// Resources that VMs take at a hypervisor endpoint.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorUse {
    /// Number of VMs.
    pub machines: i64,
    /// Virtual processors.
    pub cpus: i64,
    /// Memory, e.g. `256Gi`.
    pub memory: String,
}
