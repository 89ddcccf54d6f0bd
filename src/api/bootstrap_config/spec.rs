//! The spec and the status, composed of their parts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::containerd::Containerd;
use super::delivery::{Channel, Unattend};
use super::file::File;
use super::join::Join;
use super::known_versions::KnownVersions;
use super::kube_proxy::KubeProxy;
use super::kubelet::Kubelet;
use super::network::Network;
use super::programs::Programs;
use super::steps::Steps;
use super::windows::{Windows, WindowsRelease};
use crate::api::machine::TemplateMetadata;

/// Finalizer of a WindowsBootstrapConfig while its bootstrap token may exist in the workload cluster.
pub const FINALIZER: &str = "windowsbootstrapconfig.bootstrap.cluster.x-k8s.io";

/// The group that our join tokens authenticate to. It is our own group, so that kube-controller-manager does not approve requests automatically.
pub const JOIN_GROUP: &str = "system:bootstrappers:capw";

/// The signer of the client certificates of joining kubelets.
pub const JOIN_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Desired configuration of one Windows node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsBootstrapConfig",
    plural = "windowsbootstrapconfigs",
    namespaced,
    shortname = "wbc",
    category = "cluster-api",
    status = "WindowsBootstrapConfigStatus",
    derive = "PartialEq",
    doc = "Configuration of one Windows node: Windows release, kubelet, containerd, join. Works under any infrastructure provider that hands the data to cloudbase-init.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(
        name = "Token",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"JoinCredentialValid\")].reason",
        description = "State of the bootstrap token"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.dataSecretName", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.unattend) || self.channel == 'Unattend'").message("unattend is what Windows Setup is told, which reads nothing in other channels: set channel to Unattend, or remove unattend"))]
pub struct WindowsBootstrapConfigSpec {
    /// The Windows Server release in the image; it decides the sandbox image and the node's configuration. Default: 2022.
    #[serde(default)]
    pub windows_release: WindowsRelease,
    /// Settings of Windows itself.
    #[serde(default)]
    pub windows: Windows,
    /// Source of the programs of the node. Default: they are in the image.
    #[serde(default)]
    pub programs: Programs,
    /// Settings of the kubelet.
    #[serde(default)]
    pub kubelet: Kubelet,
    /// Settings of the container runtime.
    #[serde(default)]
    pub containerd: Containerd,
    /// kube-proxy as a Windows service. Default: none; kube-proxy then runs as a HostProcess DaemonSet, as network plug-ins provide it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_proxy: Option<KubeProxy>,
    /// How the node joins the cluster.
    #[serde(default)]
    pub join: Join,
    /// Versions that no other field of this object shows. CAPW compares them with the versions that are known to work together, as `capw compat` does; they have no other effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_versions: Option<KnownVersions>,
    /// Files to write before the join. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    #[x_kube(validation = Rule::new("self.all(f, self.exists_one(g, g.path.lowerAscii() == f.path.lowerAscii()))").message("two paths differ only in upper and lower case, which is one file to Windows: remove one"))]
    pub files: Vec<File>,
    /// The node's own network: time, names, certificates, proxy, firewall, ports, routes.
    #[serde(default)]
    pub network: Network,
    /// More steps before and after the join.
    #[serde(default, skip_serializing_if = "Steps::is_empty")]
    pub steps: Steps,
    /// The channel that carries the data to the guest; its size limit is checked before a VM is created.
    #[serde(default)]
    pub channel: Channel,
    /// Settings for Windows Setup; only with the channel `Unattend`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattend: Option<Unattend>,
}

/// Observed state.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsBootstrapConfigStatus {
    /// Milestones that Cluster API reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<BootstrapInitialization>,
    /// Name of the Secret with the data, key `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub data_secret_name: Option<String>,
    /// The public half of the bootstrap token, e.g. `a1b2c3`; the secret half is in the Secret only.
    #[serde(default, rename = "tokenID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 6, max = 6))]
    pub token_id: Option<String>,
    /// Creation time of the bootstrap token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_created_at: Option<Time>,
    /// Expiry time of the bootstrap token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Time>,
    /// Identity of the cluster that the machine was created for: the UID of its namespace `kube-system`. Another cluster behind the same kubeconfig is refused while the machine exists.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub cluster_uid: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, DataSecretAvailable, JoinCredentialValid and Paused.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct BootstrapInitialization {
    /// True once the Secret exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_created: Option<bool>,
}

/// The template from which Cluster API creates WindowsBootstrapConfigs.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsBootstrapConfigTemplate",
    plural = "windowsbootstrapconfigtemplates",
    namespaced,
    shortname = "wbct",
    category = "cluster-api",
    doc = "Template of WindowsBootstrapConfigs.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsBootstrapConfigTemplateSpec {
    /// The configuration to create.
    pub template: WindowsBootstrapConfigTemplateResource,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsBootstrapConfigTemplateResource {
    /// Labels and annotations of the configurations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the configurations.
    #[serde(default)]
    pub spec: WindowsBootstrapConfigSpec,
}
