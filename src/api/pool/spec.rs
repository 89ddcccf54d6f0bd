//! The machines of a pool and their template.

use std::collections::BTreeSet;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::standalone::PoolCluster;
use super::status::WindowsNodePoolStatus;
use super::strategy::{Autoscaling, DeletePolicy, Drain, Health, Strategy};
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::machine::{LocalReference, TemplateMetadata, WindowsMachineSpec};

/// Finalizer of a WindowsNodePool until all its machines are deleted.
pub const FINALIZER: &str = "windowsnodepool.infrastructure.cluster.x-k8s.io";
/// The most machines of a pool: Cluster API accepts no longer list of provider IDs.
pub const MOST_MACHINES: i32 = 10_000;
/// Label on the WindowsMachines of a pool: the name of the pool, or a hash if the name is too long.
pub const POOL_LABEL: &str = "infrastructure.cluster.x-k8s.io/windows-node-pool";
/// Label on the WindowsMachines of a pool: the hash of their template. A machine is outdated if its value differs from the pool's.
pub const TEMPLATE_LABEL: &str = "infrastructure.cluster.x-k8s.io/template-hash";

/// N machines of one template.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsNodePool",
    plural = "windowsnodepools",
    namespaced,
    shortname = "wnp",
    category = "cluster-api",
    status = "WindowsNodePoolStatus",
    derive = "PartialEq",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas", label_selector_path = ".status.selector"),
    doc = "Windows nodes of one template: makes, replaces and removes WindowsMachines until there are as many as asked for. A Cluster API MachinePool may own it; or it stands alone.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name",
        description = "The Cluster it belongs to"
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas", description = "Machines that are asked for"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.replicas", description = "Machines that are there"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas", description = "Machines whose Node is Ready"),
    printcolumn(
        name = "Available",
        type_ = "integer",
        json_path = ".status.availableReplicas",
        description = "Machines whose Node is Ready for minReadySeconds"
    ),
    printcolumn(
        name = "Up-to-date",
        type_ = "integer",
        json_path = ".status.upToDateReplicas",
        description = "Machines of the template as it is now"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", description = "What it waits for"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Rollout", type_ = "string", json_path = ".status.conditions[?(@.type==\"MachinesUpToDate\")].message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.cluster) || has(self.version)").message("version: needed where cluster is given, e.g. v1.36.3"))]
#[x_kube(validation = Rule::new("!has(oldSelf.cluster) || has(self.cluster)").message("cluster: cannot be taken away, the nodes of a pool stay in their cluster: make another pool"))]
pub struct WindowsNodePoolSpec {
    /// Desired number of machines, 0 to 10000. If a MachinePool owns the pool, its number is used instead.
    #[serde(default = "one_machine")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: i32,
    /// Template of the machines. A change that needs another VM replaces the machines according to `strategy`; labels, annotations, `joinDeadlineSeconds` and the labels and taints of the kubelet change in place, those of the kubelet on the Nodes.
    pub template: PoolTemplate,
    /// The cluster that the pool's nodes join without Cluster API; `{}` is the cluster that the pool is in. A pool without this field waits for a MachinePool that refers to it; with an owning MachinePool the field is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<PoolCluster>,
    /// Kubernetes version of the nodes, e.g. `v1.36.3`. If a MachinePool owns the pool, its version is used instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^v?[0-9]+[.][0-9]+[.][0-9]+([-+][-+.0-9A-Za-z]+)?$')").message("must be a version of Kubernetes, e.g. v1.36.3"))]
    pub version: Option<String>,
    /// How outdated machines are replaced.
    #[serde(default)]
    pub strategy: Strategy,
    /// Seconds that a Node must be Ready before its machine counts as available, 0 to 86400.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub min_ready_seconds: i64,
    /// Which machines are removed when there are too many.
    #[serde(default)]
    pub delete_policy: DeletePolicy,
    /// WindowsHypervisors that the machines are spread over evenly. Default: those of the MachinePool that owns the pool, otherwise that of the template. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub failure_domains: Vec<String>,
    /// Pauses the pool: no machine is created, replaced or removed.
    #[serde(default)]
    pub paused: bool,
    /// How failed machines are replaced automatically.
    #[serde(default)]
    pub health: Health,
    /// How nodes are drained without Cluster API.
    #[serde(default)]
    pub drain: Drain,
    /// Bounds for cluster-autoscaler. Without them, cluster-autoscaler does not scale the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// Provider IDs of the machines, sorted, written by the controller for Cluster API. Leave it out.
    #[serde(default, rename = "providerIDList", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub provider_id_list: Vec<String>,
}

fn one_machine() -> i32 {
    1
}

/// Template of a pool's machines.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.machine) != has(self.machineTemplateRef)").message("give exactly one of machine and machineTemplateRef"))]
#[x_kube(validation = Rule::new("!has(self.bootstrap) || !has(self.bootstrapTemplateRef)").message("give bootstrap or bootstrapTemplateRef, not both"))]
#[x_kube(validation = Rule::new("!has(self.machine) || !has(self.machine.providerID)").message("machine.providerID: belongs to one machine, leave it out"))]
#[x_kube(validation = Rule::new("!has(self.metadata) || !has(self.metadata.labels) || !self.metadata.labels.exists(k, k.startsWith('cluster.x-k8s.io/') || k.startsWith('infrastructure.cluster.x-k8s.io/'))").message("metadata.labels: keys below cluster.x-k8s.io are set by Cluster API and this controller, leave them out"))]
pub struct PoolTemplate {
    /// Labels and annotations of the WindowsMachines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<WindowsMachineSpec>,
    /// A WindowsMachineTemplate with the spec of the machines; a change in it is rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_template_ref: Option<LocalReference>,
    /// Configuration of the nodes. Default: the WindowsBootstrapConfig that the MachinePool refers to, or all defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<WindowsBootstrapConfigSpec>,
    /// A WindowsBootstrapConfigTemplate with the configuration of the nodes; a change in it is rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_template_ref: Option<LocalReference>,
}

/// Annotation on a WindowsNodePool: the comma-separated names of machines to remove, whatever the desired number is. It is written
/// together with the lower number, so that exactly these machines are removed.
pub const REMOVE_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/remove-machines";

impl WindowsNodePool {
    /// The names of the machines to remove; see [`REMOVE_ANNOTATION`].
    pub fn named_for_removal(&self) -> BTreeSet<String> {
        let listed = self.metadata.annotations.as_ref().and_then(|a| a.get(REMOVE_ANNOTATION)).map(String::as_str).unwrap_or_default();
        listed.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}
