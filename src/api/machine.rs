//! `WindowsMachine` and its template: one VM that becomes a Windows node (InfraMachine contract v1beta2,
//! docs/design/cluster-api.md).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Finalizer of a WindowsMachine from before the first call to a hypervisor until the absence of the VM is proven.
pub const FINALIZER: &str = "windowsmachine.infrastructure.cluster.x-k8s.io";

/// One virtual machine that becomes a Windows node.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsMachine",
    plural = "windowsmachines",
    namespaced,
    shortname = "wm",
    category = "cluster-api",
    status = "WindowsMachineStatus",
    derive = "PartialEq",
    doc = "One virtual machine that becomes a Windows node. Cluster API makes it from a WindowsMachineTemplate; it does nothing until a Machine owns it.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name",
        description = "The Cluster it belongs to"
    ),
    printcolumn(name = "Hypervisor", type_ = "string", json_path = ".status.failureDomain", description = "The WindowsHypervisor its VM is on"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "The VM is what the spec asks for"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready or not"
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"NodeJoined\")].reason",
        description = "How far the join of its Node is"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "HostName", type_ = "string", json_path = ".status.hostName", priority = 1),
    printcolumn(name = "IP", type_ = "string", json_path = ".status.addresses[?(@.type==\"InternalIP\")].address", priority = 1),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "NodeMessage", type_ = "string", json_path = ".status.conditions[?(@.type==\"NodeJoined\")].message", priority = 1),
    printcolumn(
        name = "Step",
        type_ = "string",
        json_path = ".status.bootstrap.item",
        description = "The step of the bootstrap that the guest spoke of last",
        priority = 1
    ),
    printcolumn(
        name = "StepState",
        type_ = "string",
        json_path = ".status.bootstrap.state",
        description = "How that step is: started, done, retry, reboot, failed or finished",
        priority = 1
    ),
    printcolumn(
        name = "StepMessage",
        type_ = "string",
        json_path = ".status.bootstrap.message",
        description = "What the guest said about it",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.providerID) || (has(self.providerID) && self.providerID == oldSelf.providerID)").message("providerID: cannot change once it is set; delete the Machine to get another VM"))]
#[x_kube(validation = Rule::new("!has(self.firmware) || self.firmware.type != 'BIOS' || !((has(self.firmware.secureBoot) && self.firmware.secureBoot) || self.firmware.tpm)").message("firmware: Secure Boot and TPM need type UEFI"))]
#[x_kube(validation = Rule::new("!has(oldSelf.providerID) || (self.image == oldSelf.image && self.cpus == oldSelf.cpus && self.memory == oldSelf.memory && self.hostName == oldSelf.hostName && self.nestedVirtualization == oldSelf.nestedVirtualization && has(self.systemDisk) == has(oldSelf.systemDisk) && (!has(self.systemDisk) || self.systemDisk == oldSelf.systemDisk) && has(self.hypervisorRef) == has(oldSelf.hypervisorRef) && (!has(self.hypervisorRef) || self.hypervisorRef == oldSelf.hypervisorRef) && has(self.firmware) == has(oldSelf.firmware) && (!has(self.firmware) || self.firmware == oldSelf.firmware) && has(self.disks) == has(oldSelf.disks) && (!has(self.disks) || self.disks == oldSelf.disks) && has(self.networks) == has(oldSelf.networks) && (!has(self.networks) || self.networks == oldSelf.networks))").message("image, cpus, memory, systemDisk, disks, networks, firmware, hypervisorRef, hostName and nestedVirtualization cannot change once the VM exists: make a new WindowsMachineTemplate and name it in the MachineDeployment"))]
pub struct WindowsMachineSpec {
    /// `windows://<hypervisor>/<uuid>`, written by the controller once the VM exists. Leave it out of templates.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 300))]
    #[x_kube(validation = Rule::new("self.matches('^windows://[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')").message("must be windows://<hypervisor>/<uuid in lower case>; leave it out, the controller writes it"))]
    pub provider_id: Option<String>,
    /// The WindowsHypervisor in the same namespace that the VM is created on. A failure domain on the Machine takes precedence. Without either, the namespace must have exactly one WindowsHypervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor_ref: Option<LocalReference>,
    /// Name of the image (VM template) on the hypervisor, e.g. `windows-server-2022`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[^[:space:][:cntrl:]]([^[:cntrl:]]*[^[:space:][:cntrl:]])?$')").message("must not begin or end with a blank or hold line breaks: write the image's name as the hypervisor shows it"))]
    pub image: String,
    /// Virtual processors, 1 to 256.
    #[serde(default = "default_cpus")]
    #[schemars(range(min = 1, max = 256))]
    pub cpus: i32,
    /// Memory, in whole `Mi`, `Gi` or `Ti`, at least 2Gi.
    #[serde(default = "default_memory")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,8}(Mi|Gi|Ti)$')").message("must be a whole number with Mi, Gi or Ti, e.g. 8Gi"))]
    #[x_kube(validation = Rule::new("!isQuantity(self) || (quantity(self).compareTo(quantity('2Gi')) >= 0 && quantity(self).compareTo(quantity('48Ti')) <= 0)").message("must be at least 2Gi, which a Windows node needs, and at most 48Ti, which Windows can use"))]
    pub memory: String,
    /// Size of the system disk, in whole `Gi` or `Ti`. Default: the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,6}(Gi|Ti)$')").message("must be a whole number with Gi or Ti, e.g. 100Gi"))]
    #[x_kube(validation = Rule::new("!isQuantity(self) || (quantity(self).compareTo(quantity('32Gi')) >= 0 && quantity(self).compareTo(quantity('64Ti')) <= 0)").message("must be at least 32Gi, which Windows needs, and at most 64Ti; leave it out for the image's own size"))]
    pub system_disk: Option<String>,
    /// Additional disks, attached empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub disks: Vec<Disk>,
    /// Networks of the hypervisor that the VM is attached to, in order. Default: the hypervisor's default network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub networks: Vec<Network>,
    /// Firmware. Default: UEFI with Secure Boot, no TPM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// Expose virtualization to the guest; needed for Hyper-V isolated containers.
    #[serde(default)]
    pub nested_virtualization: bool,
    /// How the host name (and Node name) is chosen. Windows allows 15 characters. `Auto` uses the name of the object if it fits, otherwise a shortened one with a hash; `ObjectName` refuses names that do not fit.
    #[serde(default)]
    pub host_name: HostNamePolicy,
    /// Seconds from power on until a machine without a Node is reported as `NodeNeverJoined`, 10 to 86400.
    #[serde(default = "default_join_deadline")]
    #[schemars(range(min = 10, max = 86_400))]
    pub join_deadline_seconds: i64,
}

fn default_cpus() -> i32 {
    4
}
fn default_memory() -> String {
    "8Gi".into()
}
fn default_join_deadline() -> i64 {
    2_700
}

/// The name of an object in the same namespace.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct LocalReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("must be the name of an object: lower case letters, digits, - and ."))]
    pub name: String,
}

/// An empty disk.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Name, unique in the machine.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("must be lower case letters, digits and -, e.g. data"))]
    pub name: String,
    /// Size, in whole `Gi` or `Ti`, at most 64Ti.
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,6}(Gi|Ti)$')").message("must be a whole number with Gi or Ti, e.g. 100Gi"))]
    #[x_kube(validation = Rule::new("!isQuantity(self) || quantity(self).compareTo(quantity('64Ti')) <= 0").message("must be at most 64Ti"))]
    pub size: String,
}

/// A network interface.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Name of the network, port group or bridge on the hypervisor.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[^[:space:][:cntrl:]]([^[:cntrl:]]*[^[:space:][:cntrl:]])?$')").message("must not begin or end with a blank or hold line breaks: write the network's name as the hypervisor shows it"))]
    pub name: String,
}

/// Firmware of a VM.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// `UEFI` or `BIOS`.
    #[serde(default, rename = "type")]
    pub type_: FirmwareType,
    /// Secure Boot (UEFI only). Default: true with UEFI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
    /// A virtual TPM 2.0 (UEFI only).
    #[serde(default)]
    pub tpm: bool,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum FirmwareType {
    #[default]
    #[serde(rename = "UEFI")]
    Uefi,
    #[serde(rename = "BIOS")]
    Bios,
}

/// How a host name is chosen.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum HostNamePolicy {
    /// The object's name if Windows accepts it, else a shortened one with a hash of its identity.
    #[default]
    Auto,
    /// The object's name; machines whose name Windows does not accept are reported and not created.
    ObjectName,
}

/// Observed state.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsMachineStatus {
    /// Milestones that Cluster API reads. Once set, they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachineInitialization>,
    /// Addresses of the VM, copied by Cluster API to the Machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub addresses: Vec<MachineAddress>,
    /// The WindowsHypervisor that the VM is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// Host name of the VM and name of its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Resources that the driver reserved or started, written before it acts; opaque to users.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub journal: BTreeMap<String, String>,
    /// Time at which the VM was first observed running. The join deadline starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub powered_on_at: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    /// Time since which the Node has been blocking the removal of the machine, in a pool without Cluster API. `drain.timeoutSeconds` starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    /// Time of the first request to the guest to shut down, because the machine is being removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping_since: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    /// The guest's newest report about the progress of its bootstrap. Absent until the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapProgress>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, VirtualMachineReady, NodeJoined, Deleting and Paused.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[schemars(length(max = 32))]
    pub conditions: Vec<Condition>,
}

/// The newest report of a guest about its bootstrap. It comes from inside the VM and is informative: only `failed` has consequences.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapProgress {
    /// Id of the item in the node plan, as `capw render --explain` lists it; `plan` for the whole plan.
    #[schemars(length(min = 1, max = 64))]
    pub item: String,
    /// `started`, `done`, `retry`, `reboot`, `failed` or `finished`. After `failed` and `finished` the guest does nothing more.
    #[schemars(length(min = 1, max = 64))]
    pub state: String,
    /// Failure code of the item; 0 if nothing failed.
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub code: i64,
    /// The guest's message, printable ASCII.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 240))]
    pub message: String,
    /// Number of the attempt, if the guest reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub attempt: Option<i64>,
    /// Number of the start of Windows, counted from 1.
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub boot: i64,
    /// Time at which the controller read the report.
    pub time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
}

/// Milestones that Cluster API waits for.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineInitialization {
    /// True once the VM runs and `spec.providerID` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// An address of the VM.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MachineAddress {
    /// Kind of address.
    #[serde(rename = "type")]
    pub type_: MachineAddressType,
    /// The address.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum MachineAddressType {
    Hostname,
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    #[serde(rename = "InternalIP")]
    InternalIp,
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
    #[serde(rename = "InternalDNS")]
    InternalDns,
}

/// The template from which Cluster API creates WindowsMachines.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsMachineTemplate",
    plural = "windowsmachinetemplates",
    namespaced,
    shortname = "wmt",
    category = "cluster-api",
    status = "WindowsMachineTemplateStatus",
    doc = "Template of WindowsMachines. To roll out a change, make a new template and name it in the MachineDeployment; a changed template affects later machines only.",
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.template.spec.image"),
    printcolumn(name = "CPUs", type_ = "integer", json_path = ".spec.template.spec.cpus"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.template.spec.memory"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsMachineTemplateSpec {
    /// The machine to create.
    pub template: WindowsMachineTemplateResource,
}

#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.spec.providerID)").message("spec.providerID: belongs to one machine, leave it out of templates"))]
pub struct WindowsMachineTemplateResource {
    /// Labels and annotations of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the machines.
    pub spec: WindowsMachineSpec,
}

/// Labels and annotations of the objects that are created from a template.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    #[x_kube(validation = Rule::new("self.all(k, k.size() <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))").message("must be labels: keys like example.com/pool, values of letters, digits, -, _ and ."))]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.all(k, k.size() <= 317 && k.lowerAscii().matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$'))").message("keys must be annotation keys: at most 63 letters, digits, -, _ and ., e.g. example.com/owner"))]
    pub annotations: BTreeMap<String, String>,
}

/// Capacity and node info that cluster-autoscaler needs to scale from zero.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WindowsMachineTemplateStatus {
    /// `cpu`, `memory` and `pods` of a machine that is created from this template, as quantities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, String>,
    /// Operating system and architecture of a machine that is created from this template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_info: Option<TemplateNodeInfo>,
}

#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateNodeInfo {
    /// Always `amd64`.
    pub architecture: String,
    /// Always `windows`.
    pub operating_system: String,
}
