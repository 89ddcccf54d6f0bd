//! `WindowsBootstrapConfig` and its template: how a Windows node is made (bootstrap contract v1beta2, `capi-contract.md` §3).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::TemplateMetadata;

/// Kept on a WindowsBootstrapConfig while its bootstrap token may exist in the workload cluster.
pub const FINALIZER: &str = "windowsbootstrapconfig.bootstrap.cluster.x-k8s.io";

/// The group that our join tokens authenticate to. It is our own, so that kube-controller-manager does not approve by itself.
pub const JOIN_GROUP: &str = "system:bootstrappers:capw";
/// The signer of the certificates with which a kubelet joins.
pub const JOIN_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// How one Windows node is made.
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
    doc = "How one Windows node is made: Windows release, kubelet, containerd, join. Works under any infrastructure provider that hands the data to cloudbase-init.",
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
pub struct WindowsBootstrapConfigSpec {
    /// The Windows Server release in the image; it decides the pause image and what the node is told. Default: 2022.
    #[serde(default)]
    pub windows_release: WindowsRelease,
    /// The kubelet.
    #[serde(default)]
    pub kubelet: Kubelet,
    /// The container runtime.
    #[serde(default)]
    pub containerd: Containerd,
    /// How the node gets into the cluster.
    #[serde(default)]
    pub join: Join,
    /// Files to write before the join. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    #[x_kube(validation = Rule::new("self.all(f, self.exists_one(g, g.path.lowerAscii() == f.path.lowerAscii()))").message("two paths differ only in upper and lower case, which is one file to Windows: remove one"))]
    pub files: Vec<File>,
    /// The channel that carries the data to the guest; its size limit is checked before a VM is made.
    #[serde(default)]
    pub channel: Channel,
}

/// A release of Windows Server.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum WindowsRelease {
    #[serde(rename = "2019")]
    Server2019,
    #[default]
    #[serde(rename = "2022")]
    Server2022,
    #[serde(rename = "2025")]
    Server2025,
}

/// How user data reaches cloudbase-init (`windows-bootstrap.md` §1.2).
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Channel {
    /// A config drive image; the limit is the Kubernetes Secret that holds the data, 1 MiB.
    #[default]
    ConfigDrive,
    /// One VMware guestinfo value, 64 KiB.
    GuestInfo,
}

/// What the kubelet is told. Everything else is computed.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// Labels that the Node registers with. The API server forbids a kubelet most labels below `kubernetes.io` and `k8s.io`: put those on the Machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.all(k, !k.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') || k.matches('^([^/]*[.])?(node|kubelet)[.]kubernetes[.]io/') || k in ['kubernetes.io/hostname', 'kubernetes.io/arch', 'kubernetes.io/os', 'topology.kubernetes.io/zone', 'topology.kubernetes.io/region'])").message("NodeRestriction forbids a kubelet labels below kubernetes.io and k8s.io; set them on the Machine's template instead"))]
    #[x_kube(validation = Rule::new("self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))").message("keys must be label keys of at most 63 characters, e.g. example.com/pool"))]
    #[x_kube(validation = Rule::new("self.all(k, self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))").message("values must be label values: letters, digits, -, _ and ., beginning and ending with a letter or digit"))]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_labels: BTreeMap<String, String>,
    /// Taints that the Node registers with, beside Cluster API's own. Default: `os=windows:NoSchedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into(), "effect".into()]))]
    pub taints: Option<Vec<Taint>>,
    /// Most pods on the node, 1 to 250. Default: 110, or 30 on a machine with less than 8Gi of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 250))]
    pub max_pods: Option<i32>,
    /// Kept for Windows itself. Default: computed from processors and memory.
    #[serde(default)]
    pub system_reserved: Reserve,
    /// Kept for kubelet, containerd and the shims of the pods. Default: computed from the most pods.
    #[serde(default)]
    pub kube_reserved: Reserve,
    /// Priority class of the kubelet's process. Default: `ABOVE_NORMAL_PRIORITY_CLASS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<PriorityClass>,
    /// Addresses of the cluster's DNS service. Default: the tenth address of the first service network of the Cluster, or what kubeadm's configuration in the cluster says.
    #[serde(default, rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(min = 1, max = 45)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("must be IP addresses, e.g. 10.96.0.10"))]
    pub cluster_dns: Vec<String>,
}

/// An amount of resources; fields not given are computed.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Reserve {
    /// Processors, e.g. `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,6}m?$')").message("must be whole processors or thousandths, e.g. 500m"))]
    pub cpu: Option<String>,
    /// Memory, in whole `Mi` or `Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,6}(Mi|Gi)$')").message("must be a whole number with Mi or Gi, e.g. 512Mi"))]
    pub memory: Option<String>,
}

/// A taint, as in a Node.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key, a qualified name.
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')").message("must be a qualified name of at most 63 characters, e.g. example.com/windows"))]
    pub key: String,
    /// Value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')").message("must be letters, digits, -, _ and ., beginning and ending with a letter or digit"))]
    pub value: Option<String>,
    /// What happens to pods that do not tolerate it.
    pub effect: TaintEffect,
}

#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// Priority classes of Windows that the kubelet accepts for `--windows-priorityclass`.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum PriorityClass {
    #[serde(rename = "NORMAL_PRIORITY_CLASS")]
    Normal,
    #[serde(rename = "ABOVE_NORMAL_PRIORITY_CLASS")]
    AboveNormal,
    #[serde(rename = "HIGH_PRIORITY_CLASS")]
    High,
}

/// What containerd is told.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Containerd {
    /// Line of containerd in the image; it decides the schema of `config.toml`. Default: `2`.
    #[serde(default)]
    pub line: ContainerdLine,
    /// The sandbox ("pause") image. Default: the one that has the Windows release of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._:/@]*$') && !self.contains('://')").message("must be an image reference without scheme and blanks, e.g. registry.k8s.io/pause:3.10.1"))]
    pub sandbox_image: Option<String>,
}

/// A release line of containerd.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ContainerdLine {
    /// 1.7: `version = 2` of the configuration schema.
    #[serde(rename = "1.7")]
    V1,
    /// 2.x: `version = 3`.
    #[default]
    #[serde(rename = "2")]
    V2,
}

/// The bootstrap token of a machine.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.tokenMaxAgeSeconds >= self.tokenTTLSeconds").message("tokenMaxAgeSeconds (default 7200) must not be less than tokenTTLSeconds (default 3600): raise the one or lower the other"))]
pub struct Join {
    /// How long a token lives unless it is refreshed, 60 s to 1 day. Default: 3600. It is refreshed while the machine has not joined and deleted when the first certificate of the node is issued.
    #[serde(default = "default_ttl", rename = "tokenTTLSeconds")]
    #[schemars(range(min = 60, max = 86_400))]
    pub token_ttl_seconds: i64,
    /// How long it is refreshed at most; then the machine is reported as `TokenExpired`. 60 s to 7 days. Default: 7200.
    #[serde(default = "default_max_age")]
    #[schemars(range(min = 60, max = 604_800))]
    pub token_max_age_seconds: i64,
}

fn default_ttl() -> i64 {
    3_600
}
fn default_max_age() -> i64 {
    7_200
}

impl Default for Join {
    fn default() -> Self {
        Self { token_ttl_seconds: default_ttl(), token_max_age_seconds: default_max_age() }
    }
}

/// A file on the node, readable by administrators only.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Absolute Windows path, e.g. `C:\k\audit.json`.
    #[schemars(length(min = 4, max = 240))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[^<>:"/|?*\\\\[:cntrl:]]*[^<>:"/|?*\\\\[:cntrl:]. ])+$')"#).message("must be an absolute Windows path of a file, without .. and without names that end in a dot or blank, e.g. C:\\k\\audit.json"))]
    #[x_kube(validation = Rule::new(r#"!self.matches('(?i)\\\\(con|prn|aux|nul|com[0-9]|lpt[0-9])([.][^\\\\]*)?(\\\\|$)')"#).message("CON, PRN, AUX, NUL, COM0-9 and LPT0-9 are devices to Windows, not files: use another name"))]
    pub path: String,
    /// The text; written as UTF-8 without a byte order mark, line ends as given.
    #[schemars(length(max = 1_048_576))]
    pub content: String,
}

/// What the controller reports.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsBootstrapConfigStatus {
    /// Read by Cluster API.
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
    /// When that token was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_created_at: Option<Time>,
    /// Until when it is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Time>,
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

/// What Cluster API makes WindowsBootstrapConfigs from.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsBootstrapConfigTemplate",
    plural = "windowsbootstrapconfigtemplates",
    namespaced,
    shortname = "wbct",
    category = "cluster-api",
    doc = "What Cluster API makes WindowsBootstrapConfigs from.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsBootstrapConfigTemplateSpec {
    /// The configuration to make.
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
