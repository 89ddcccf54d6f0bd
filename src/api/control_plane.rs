//! `ExternalControlPlane` and its template: a control plane that Cluster API did not create.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::ControlPlaneEndpoint;
use super::kubeconfig::KubeconfigSecretReference;
use super::machine::TemplateMetadata;

/// Finalizer of an ExternalControlPlane while its cluster has Machines, which could be neither drained nor removed without its kubeconfig, and
/// while a WindowsCluster that is being deleted has something to remove there.
pub const FINALIZER: &str = "externalcontrolplane.controlplane.cluster.x-k8s.io";

/// A control plane that already exists.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ExternalControlPlane",
    plural = "externalcontrolplanes",
    namespaced,
    shortname = "ecp",
    category = "cluster-api",
    status = "ExternalControlPlaneStatus",
    derive = "PartialEq",
    doc = "A control plane that already exists (kubeadm, k3s, managed, anything): the kubeconfig of an administrator in, what Cluster API needs to add workers to it out.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].reason"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.controlPlaneEndpoint.host"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ExternalControlPlaneSpec {
    /// Endpoint at which nodes reach the API server. Default: the server of the kubeconfig; the controller fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The Secret (same namespace) with the kubeconfig. Default: `<cluster>-external-kubeconfig`, key `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretReference>,
    /// The expected Kubernetes version of the control plane, e.g. `v1.36.3`. ClusterClass writes it; it is compared with the version that the API server reports, and nothing is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^v[0-9]+[.][0-9]+[.][0-9]+([-+][-+.A-Za-z0-9]*)?$')").message("must be a version with all three numbers and a v, e.g. v1.36.3"))]
    pub version: Option<String>,
}

/// Observed state.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalControlPlaneStatus {
    /// Milestones that Cluster API reads. Once set, they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ControlPlaneInitialization>,
    /// Always true: this control plane is managed externally. Without this field Cluster API would not drain and delete Nodes of a cluster that has only workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_managed_control_plane: Option<bool>,
    /// The version that the API server reports, e.g. `v1.36.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Versions of all replicas of the control plane, the oldest first, for Cluster API from 1.14 on. The endpoint counts as one replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["version".into()]))]
    pub versions: Vec<StatusVersion>,
    /// SHA-256 of the kubeconfig that was checked last, so that permissions are checked again only when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_kubeconfig: Option<String>,
    /// Identity of the cluster: the UID of its namespace `kube-system`. Another cluster behind the same kubeconfig is refused.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub cluster_uid: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Available, Ready, VersionReached, Deleting and Paused.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

/// A version that replicas of a control plane run.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StatusVersion {
    /// A version of Kubernetes, e.g. `v1.36.3`.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ControlPlaneInitialization {
    /// True once the API server has answered with these credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// The template from which ClusterClass creates ExternalControlPlanes.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ExternalControlPlaneTemplate",
    plural = "externalcontrolplanetemplates",
    namespaced,
    shortname = "ecpt",
    category = "cluster-api",
    doc = "Template of ExternalControlPlanes, for ClusterClasses.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ExternalControlPlaneTemplateSpec {
    /// The control plane to describe.
    pub template: ExternalControlPlaneTemplateResource,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalControlPlaneTemplateResource {
    /// Labels and annotations of the control planes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the control planes.
    #[serde(default)]
    pub spec: ExternalControlPlaneSpec,
}
