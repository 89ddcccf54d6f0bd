//! `WindowsCluster` and its template: the infrastructure cluster that Cluster API requires.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::components::{ComponentPart, Components, ComponentsMode, ComponentsStatus};
use super::kubeconfig::KubeconfigSecretReference;
use super::machine::{LocalReference, TemplateMetadata};

/// Finalizer of a WindowsCluster while the workload cluster may still have objects that CAPW created there for its Windows nodes.
pub const FINALIZER: &str = "windowscluster.infrastructure.cluster.x-k8s.io";

/// The infrastructure of one workload cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsCluster",
    plural = "windowsclusters",
    namespaced,
    shortname = "wc",
    category = "cluster-api",
    status = "WindowsClusterStatus",
    derive = "PartialEq",
    doc = "The infrastructure of one workload cluster: which hypervisors its Windows machines may use. There is nothing to build, so it is ready at once.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(
        name = "Hypervisors",
        type_ = "string",
        json_path = ".status.failureDomains[*].name",
        description = "The hypervisors that its machines may use"
    ),
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".status.components.network.name",
        description = "The pod network of its Linux nodes"
    ),
    printcolumn(
        name = "Compatible",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"NetworkCompatible\")].reason",
        description = "Whether Windows nodes can be on that network, or why not"
    ),
    printcolumn(
        name = "Components",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"ComponentsReady\")].reason",
        description = "Whether what CAPW brings to Windows nodes runs there, or why not"
    ),
    printcolumn(
        name = "Verified",
        type_ = "string",
        json_path = ".status.components.verified",
        description = "Windows nodes that can take pods, of all"
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.cluster) == has(oldSelf.cluster)").message("cluster: cannot be added or removed later: make another WindowsCluster"))]
pub struct WindowsClusterSpec {
    /// The cluster that this object represents without a Cluster of Cluster API: the cluster of standalone pools. A Cluster that names this object in its infrastructureRef takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<NamedCluster>,
    /// Endpoint of the API server. Leave it out if the control plane object supplies it. With spec.cluster: the endpoint at which nodes reach the API server, if it is not the address in the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The hypervisors (in the same namespace) that machines of this cluster may use; they are also its failure domains. Default: every WindowsHypervisor in the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub hypervisors: Vec<LocalReference>,
    /// Components of the cluster that Windows nodes need, above all its pod network. Without this field, CAPW does not read the cluster's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<Components>,
}

impl WindowsCluster {
    fn known_components(&self) -> Option<&ComponentsStatus> {
        self.status.as_ref()?.components.as_ref()
    }

    /// The mode in which CAPW handles Windows nodes and pods: `Off` if `spec.components` is not set.
    pub fn components_mode(&self) -> ComponentsMode {
        self.spec.components.as_ref().map_or(ComponentsMode::Off, |components| components.mode)
    }

    /// The components that CAPW has deployed on Windows nodes, or is about to deploy.
    pub fn parts(&self) -> &[ComponentPart] {
        self.known_components().map(|known| known.parts.as_slice()).unwrap_or_default()
    }

    /// The objects that CAPW has created for Windows pods, or is about to create.
    pub fn objects(&self) -> &[String] {
        self.known_components().map(|known| known.objects.as_slice()).unwrap_or_default()
    }

    /// The changes that CAPW would write to the workload cluster, with `mode: Report`.
    pub fn planned(&self) -> &[String] {
        self.known_components().map(|known| known.planned.as_slice()).unwrap_or_default()
    }
}

/// A cluster without Cluster API.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.kubeconfigSecretRef) == has(oldSelf.kubeconfigSecretRef) && (!has(self.kubeconfigSecretRef) || self.kubeconfigSecretRef == oldSelf.kubeconfigSecretRef)").message("kubeconfigSecretRef: cannot change, what was brought stays in its cluster: make another WindowsCluster"))]
pub struct NamedCluster {
    /// A Secret (same namespace) with the kubeconfig of the cluster. Default: the cluster that the object itself is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretReference>,
}

/// Host and port of an API server.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneEndpoint {
    /// Name or address, without scheme and port.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("isIP(self) || (self.matches('^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$') && !self.matches('^[0-9.]+$'))").message("must be a host name or an IP address, without scheme, port and path, e.g. k8s.example.com"))]
    pub host: String,
    /// Port, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// Observed state.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsClusterStatus {
    /// Milestones that Cluster API reads. Once set, they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    /// The hypervisors that machines may be spread over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Observed state of the cluster's components, with spec.components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<ComponentsStatus>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, HypervisorsReachable, NetworkCompatible, SchedulingClean, LinuxSideReady, ComponentsReady, Deleting and Paused.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterInitialization {
    /// True once the infrastructure of the cluster exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// A place that machines can be spread over: here, a hypervisor.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name of the WindowsHypervisor.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Always false: this provider creates worker machines only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// Attributes of the failure domain, e.g. `reachable`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// The template from which ClusterClass creates WindowsClusters.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsClusterTemplate",
    plural = "windowsclustertemplates",
    namespaced,
    shortname = "wct",
    category = "cluster-api",
    doc = "Template of WindowsClusters, for ClusterClasses.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.template.spec) || !has(self.template.spec.cluster)").message("template.spec.cluster: a ClusterClass makes a Cluster, which names the cluster: remove it"))]
pub struct WindowsClusterTemplateSpec {
    /// The cluster to create.
    pub template: WindowsClusterTemplateResource,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsClusterTemplateResource {
    /// Labels and annotations of the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the clusters.
    #[serde(default)]
    pub spec: WindowsClusterSpec,
}
