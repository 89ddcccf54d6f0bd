//! The settings of the kubelet, and the reserves for Windows and the node's own programs.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::credential_provider::ImageCredentialProvider;

/// Settings of the kubelet. Everything else is computed.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// Labels that the Node registers with. The API server does not let a kubelet set most labels below `kubernetes.io` and `k8s.io`: put those on the Machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = Rule::new("self.all(k, !k.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') || k.matches('^([^/]*[.])?(node|kubelet)[.]kubernetes[.]io/') || k in ['kubernetes.io/hostname', 'kubernetes.io/arch', 'kubernetes.io/os', 'topology.kubernetes.io/zone', 'topology.kubernetes.io/region'])").message("NodeRestriction forbids a kubelet labels below kubernetes.io and k8s.io; set them on the Machine's template instead"))]
    #[x_kube(validation = Rule::new("self.all(k, k.size() <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))").message("keys must be label keys of at most 63 characters, e.g. example.com/pool"))]
    #[x_kube(validation = Rule::new("self.all(k, self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))").message("values must be label values: letters, digits, -, _ and ., beginning and ending with a letter or digit"))]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_labels: BTreeMap<String, String>,
    /// Taints that the Node registers with, in addition to Cluster API's own. Default: `os=windows:NoSchedule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into(), "effect".into()]))]
    pub taints: Option<Vec<Taint>>,
    /// Maximum number of pods on the node, 1 to 250, and at most as many as have an address there. Default: 110, or 30 on a machine with at most 8Gi
    /// of memory, or fewer if fewer have an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 250))]
    pub max_pods: Option<i32>,
    /// How early pods are evicted when memory runs out. Default: `Standard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_profile: Option<ReserveProfile>,
    /// Reserved for Windows itself. Default: computed from processors and memory; `capw render --explain` shows how.
    #[serde(default)]
    pub system_reserved: Reserve,
    /// Reserved for kubelet, containerd and the shims of the pods. Default: computed from processors and `maxPods`.
    #[serde(default)]
    pub kube_reserved: Reserve,
    /// The kubelet evicts pods below these thresholds. Those that are not given are computed, because a kubelet treats missing ones as 0.
    #[serde(default)]
    pub eviction_hard: EvictionHard,
    /// Priority class of the kubelet's process. Default: `ABOVE_NORMAL_PRIORITY_CLASS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<PriorityClass>,
    /// Addresses of the cluster's DNS service. Default: those of the ConfigMap `kubelet-config` in the cluster, for kubeadm the tenth address of the service network.
    #[serde(default, rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(min = 1, max = 45)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("must be IP addresses, e.g. 10.96.0.10"))]
    pub cluster_dns: Vec<String>,
    /// Addresses of the node: one, or one per family; `0.0.0.0` or `::` for the family's default. Default: on a machine with more than one network that from which it reaches the API server when it joins, unless `cloudProvider` is set; otherwise the kubelet chooses.
    #[serde(default, rename = "nodeIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), inner(length(min = 2, max = 45)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a)) && (size(self) < 2 || ip(self[0]).family() != ip(self[1]).family())").message("must be one IP address, or one of IPv4 and one of IPv6, e.g. 10.0.0.21"))]
    pub node_ips: Vec<String>,
    /// `External`: a cloud controller manager completes the Node; until then it has the taint `node.cloudprovider.kubernetes.io/uninitialized`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider: Option<CloudProvider>,
    /// The kubelet's serving certificate. Default: `SelfSigned`.
    #[serde(default)]
    pub serving_certificate: ServingCertificate,
    /// Whether `kubectl get --raw /api/v1/nodes/NAME/proxy/logs/?query=kubelet` works, for users who may read `nodes/proxy`. Default: true from Kubernetes 1.36 on, where it is stable, otherwise false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_query: Option<bool>,
    /// Credential providers for registries. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_credential_provider: Option<ImageCredentialProvider>,
    /// More fields of the KubeletConfiguration (kubelet.config.k8s.io/v1beta1), e.g. `imageMaximumGCAge: 168h`: they override CAPW's defaults and are checked against the Kubernetes version. At most 64 fields and 16 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "any_fields")]
    pub extra_config: BTreeMap<String, serde_json::Value>,
    /// More flags of the kubelet, without `--`; they are checked against the Kubernetes version. Most settings are fields: see `extraConfig`. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub extra_args: Vec<Argument>,
}

/// An object with arbitrary fields, which another program defines.
fn any_fields(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": 64})
}

/// A flag of a program.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Argument {
    /// Name without `--`, e.g. `node-status-max-images`.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("must be the name of a flag in lower case without --, e.g. node-status-max-images"))]
    pub name: String,
    /// Value; not empty, because empty values get lost in the command line of a service.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[ -~]+$')").message("must be printable ASCII characters"))]
    pub value: String,
}

/// Who completes the Node.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum CloudProvider {
    /// A cloud controller manager in the cluster.
    External,
}

/// The serving certificate of a kubelet.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ServingCertificate {
    /// The kubelet signs it itself; clients cannot verify it.
    #[default]
    SelfSigned,
    /// The cluster's CA signs it. CAPW approves the requests (signer `kubernetes.io/kubelet-serving`) for the host name of the machine and the addresses that its hypervisor reports; for other machines, or with `--approve-serving-certificates=false`, you need an approver: without one, logs, exec and metrics of the node fail.
    ClusterSigned,
}

/// An amount of resources; missing fields are computed.
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
    /// Space on the node's disk, in whole `Mi` or `Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,6}(Mi|Gi)$')").message("must be a whole number with Mi or Gi, e.g. 1Gi"))]
    pub ephemeral_storage: Option<String>,
}

/// How early pods are evicted when memory runs out.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ReserveProfile {
    /// Below 3% of the memory, but at least 500Mi. The page file counts as memory: a node with a large one pages before it evicts.
    #[default]
    Standard,
    /// Earlier by half of the page file, because the kubelet measures commit, which is memory and page file together. Allocatable memory is lower by that amount.
    Safe,
}

/// Eviction thresholds: an amount in whole `Mi` or `Gi`, or a percentage. The kubelet has no other signals on Windows.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct EvictionHard {
    /// Free commit (memory and page file). Default: by `reserveProfile`.
    #[serde(default, rename = "memory.available", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^([1-9][0-9]{0,6}(Mi|Gi)|[1-9][0-9]?%)$')").message("must be a whole number with Mi, Gi or %, e.g. 500Mi"))]
    pub memory_available: Option<String>,
    /// Free space on the disk of the pods. Default: `10%`.
    #[serde(default, rename = "nodefs.available", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^([1-9][0-9]{0,6}(Mi|Gi)|[1-9][0-9]?%)$')").message("must be a whole number with Mi, Gi or %, e.g. 10%"))]
    pub nodefs_available: Option<String>,
    /// Free space on the disk of the images. Default: `15%`.
    #[serde(default, rename = "imagefs.available", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^([1-9][0-9]{0,6}(Mi|Gi)|[1-9][0-9]?%)$')").message("must be a whole number with Mi, Gi or %, e.g. 15%"))]
    pub imagefs_available: Option<String>,
}

/// A taint, as in a Node.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key, a qualified name.
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && (!self.contains('/') || self.indexOf('/') <= 253)").message("must be a qualified name of at most 63 characters, e.g. example.com/windows"))]
    pub key: String,
    /// Value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')").message("must be letters, digits, -, _ and ., beginning and ending with a letter or digit"))]
    pub value: Option<String>,
    /// What happens to pods that do not tolerate the taint.
    pub effect: TaintEffect,
}

impl Taint {
    /// The default taint of Nodes, `os=windows:NoSchedule`: it keeps away pods that do not request Windows.
    pub fn windows() -> Self {
        Self { key: "os".into(), value: Some("windows".into()), effect: TaintEffect::NoSchedule }
    }
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
