//! `WindowsHypervisor`: an endpoint that provides VMs, with exactly one driver.

mod libvirt;
mod proxmox;
mod vsphere;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::LocalReference;

pub use self::libvirt::{Acceleration, Console, DeviceModel, GuestWords, Libvirt};
pub use self::proxmox::{Proxmox, VmIds};
pub use self::vsphere::{CloneMode, Vsphere};

/// A hypervisor endpoint with its credentials. Machines in the same namespace name it in `spec.hypervisorRef`, or Cluster API does so through the failure domain of a Machine. Exactly one driver is set.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "WindowsHypervisor",
    plural = "windowshypervisors",
    namespaced,
    shortname = "whv",
    category = "cluster-api",
    status = "WindowsHypervisorStatus",
    derive = "PartialEq",
    validation = Rule::new("size(self.metadata.name) <= 63").message("metadata.name: must have at most 63 characters: it becomes a failure domain and part of provider IDs"),
    doc = "A hypervisor endpoint with its credentials. Machines in the same namespace name it in spec.hypervisorRef, or Cluster API does through the failure domain of a Machine.",
    printcolumn(name = "Driver", type_ = "string", json_path = ".status.driver", description = "The driver that talks to it"),
    printcolumn(
        name = "Reachable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Reachable\")].status",
        description = "Whether it answers"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether machines can be made there"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", description = "Why"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", description = "What it reports as its version"),
    printcolumn(name = "CPUs", type_ = "integer", json_path = ".status.capacity.cpus", description = "Processors in all"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.capacity.memory", description = "Memory in all"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.simulated), has(self.libvirt), has(self.vsphere), has(self.proxmox)].exists_one(driver, driver)").message("name exactly one driver of simulated, libvirt, vsphere and proxmox, e.g. spec.simulated: {}"))]
#[x_kube(validation = Rule::new("has(self.simulated) == has(oldSelf.simulated) && has(self.libvirt) == has(oldSelf.libvirt) && has(self.vsphere) == has(oldSelf.vsphere) && has(self.proxmox) == has(oldSelf.proxmox)").message("the driver cannot change, the VMs would be lost: make another WindowsHypervisor"))]
pub struct WindowsHypervisorSpec {
    /// A hypervisor of memory and files inside the operator, for demos, tests and dry runs. Its guests read the config drive that a real guest would read and join the cluster with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// QEMU on a host of your own, through its libvirt daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<Libvirt>,
    /// VMs of a vCenter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<Vsphere>,
    /// VMs of a Proxmox VE cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxmox: Option<Proxmox>,
    /// A Secret in the same namespace with the credentials; its required keys depend on the driver. CAPW reads the Secret every five minutes, and at once when the hypervisor does not accept the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<LocalReference>,
    /// Aliases of images: a machine that requests `name` gets the image `is`. One template then fits several hypervisors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub images: Vec<Alias>,
    /// Aliases for the networks that machines name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub networks: Vec<Alias>,
    /// Resources that all machines on this hypervisor together may take. CAPW checks these limits before it creates anything there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Seconds that a guest has to shut down when its machine is removed; after that, its power is cut.
    #[serde(default = "default_stop")]
    #[schemars(range(min = 0, max = 3600))]
    pub stop_seconds: i64,
    /// Policy for VMs with CAPW's mark of this namespace that belong to no WindowsMachine, e.g. because finalizers were removed by hand: `Report` names them in the condition `VirtualMachinesOwned`, `Remove` also stops and removes them after an hour. Do not choose `Remove` while another management cluster uses the same hypervisor from a namespace of the same name: its VMs would be treated as orphans.
    #[serde(default, skip_serializing_if = "Orphans::is_default")]
    pub orphans: Orphans,
}

fn default_stop() -> i64 {
    120
}

impl WindowsHypervisorSpec {
    /// Name of the driver that is set.
    pub fn driver(&self) -> Option<&'static str> {
        let simulated = self.simulated.as_ref().map(|_| "simulated");
        let libvirt = self.libvirt.as_ref().map(|_| "libvirt");
        let vsphere = self.vsphere.as_ref().map(|_| "vsphere");
        let proxmox = self.proxmox.as_ref().map(|_| "proxmox");
        simulated.or(libvirt).or(vsphere).or(proxmox)
    }
}

impl Default for WindowsHypervisorSpec {
    fn default() -> Self {
        Self {
            simulated: None,
            libvirt: None,
            vsphere: None,
            proxmox: None,
            credentials_ref: None,
            images: Vec::new(),
            networks: Vec::new(),
            limits: None,
            stop_seconds: default_stop(),
            orphans: Orphans::default(),
        }
    }
}

/// What happens to CAPW's VMs that belong to no WindowsMachine.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Orphans {
    #[default]
    Report,
    Remove,
}

impl Orphans {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Another name for an image or a network.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Alias {
    /// The name that machines use.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[^[:space:][:cntrl:]]([^[:cntrl:]]*[^[:space:][:cntrl:]])?$')").message("must not begin or end with a blank or hold line breaks: write the name as machines do"))]
    pub name: String,
    /// The name that the hypervisor shows.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[^[:space:][:cntrl:]]([^[:cntrl:]]*[^[:space:][:cntrl:]])?$')").message("must not begin or end with a blank or hold line breaks: write the name as the hypervisor shows it"))]
    pub is: String,
}

/// Limits of a hypervisor. A machine counts from the choice of its hypervisor until the machine is deleted, whether its VM exists or not.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[schemars(extend("minProperties" = 1))]
pub struct Limits {
    /// Number of machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub machines: Option<i64>,
    /// Total virtual processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub cpus: Option<i64>,
    /// Total memory, e.g. `1280Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,8}(Mi|Gi|Ti)$')").message("must be a whole number with Mi, Gi or Ti, e.g. 256Gi"))]
    pub memory: Option<String>,
    /// Number of VM changes at the same time. Default: as many as the driver allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub changes: Option<i64>,
}

/// A simulated data centre.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.datacenter) == has(oldSelf.datacenter) && (!has(self.datacenter) || self.datacenter == oldSelf.datacenter)").message("datacenter: cannot change, the VMs would be lost: make another WindowsHypervisor"))]
pub struct Simulated {
    /// Name of the data centre. WindowsHypervisors with the same data centre see the same VMs, like two connections to one vCenter. Default: `<namespace>.<name>` of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message("must be lower case letters, digits, - and ., e.g. munich-1"))]
    pub datacenter: Option<String>,
    /// Images (VM templates) that exist there. Default: `windows-server-2019`, `windows-server-2022` and `windows-server-2025`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(i, i.matches('^[^[:space:][:cntrl:]]([^[:cntrl:]]*[^[:space:][:cntrl:]])?$'))").message("must not begin or end with a blank or hold line breaks: write the names as machines do, e.g. windows-server-2022"))]
    pub images: Option<Vec<String>>,
    /// Guest of new VMs: `Model` is a model of Windows inside the operator, for thousands of VMs; `Wine` runs the Windows programs themselves (kubelet, kubeadm, containerd) under Wine, which needs `--wine-programs`, root and Linux.
    #[serde(default)]
    pub guest: GuestKind,
    /// Capacity. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<SimulatedCapacity>,
    /// Simulated durations.
    #[serde(default)]
    pub delays: SimulatedDelays,
    /// `true` makes the endpoint refuse every call, like a hypervisor whose network is down.
    #[serde(default)]
    pub unreachable: bool,
    /// Percentage of calls that fail: a third is not carried out, a third loses its reply, a third is never answered. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub failing_calls: Option<i32>,
    /// Faults by VM name. The names `*-noboot`, `*-nojoin` and `*-slow` (also followed by a random suffix) have those faults without being listed.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub faults: Vec<SimulatedFault>,
}

impl Simulated {
    /// The images that exist if the spec names none.
    pub const DEFAULT_IMAGES: [&str; 3] = ["windows-server-2019", "windows-server-2022", "windows-server-2025"];
}

/// Kind of the guests of a simulated data centre.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum GuestKind {
    /// A model of Windows inside the operator. It joins as kubeadm and the kubelet do.
    #[default]
    Model,
    /// The Windows programs themselves, run by Wine.
    Wine,
}

/// Limits of a simulated data centre.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedCapacity {
    /// Total virtual processors.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cpus: i32,
    /// Total memory, e.g. `256Gi`.
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,8}(Mi|Gi|Ti)$')").message("must be a whole number with Mi, Gi or Ti, e.g. 256Gi"))]
    pub memory: String,
}

/// Delays in milliseconds, 0 to 1 hour.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct SimulatedDelays {
    /// From the create call until the VM exists.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub create_milliseconds: i64,
    /// From power on until the guest reads its config drive.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub boot_milliseconds: i64,
    /// From the reading of the config drive until the guest joins the cluster.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub join_milliseconds: i64,
    /// From the stop call until the VM is off.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub stop_milliseconds: i64,
}

/// One scripted fault.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedFault {
    /// VM names that it affects; `*` stands for any text.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-a-z0-9.*]+$')").message("must be the name of a machine, lower case letters, digits, - and ., with * for any text, e.g. pool-1-*"))]
    pub names: String,
    /// Simulated fault.
    pub fault: Fault,
    /// Number of VMs that it affects: the first ones that match. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub count: Option<i32>,
}

/// Faults of a simulated data centre.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum Fault {
    /// The VM is on but nothing ever runs in it.
    NoBoot,
    /// The guest boots and carries out its plan, but its join never succeeds.
    NoJoin,
    /// Boot and join take ten times as long (at least 10 s).
    Slow,
    /// The create call fails with a transient error, three times.
    CreateFails,
    /// The guest cannot install a Windows feature: the image lacks its source.
    FeatureMissing,
    /// The guest's disk is full when it writes the first file.
    DiskFull,
    /// containerd does not start in the guest.
    RuntimeBroken,
    /// The guest's token is refused as unknown.
    TokenExpired,
    /// The guest's clock stays wrong.
    ClockWrong,
    /// The image lacks the kubelet.
    ProgramMissing,
    /// The guest's kubeadm finds a certificate authority other than the one that it was given.
    ClusterUnknown,
    /// The guest's kubeadm finds that a Node with its name exists.
    NameTaken,
    /// The guest's kubelet does not stay up.
    KubeletBroken,
}

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
