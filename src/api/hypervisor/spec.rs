//! The endpoint, its driver and what machines may take there.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::libvirt::Libvirt;
use super::proxmox::Proxmox;
use super::simulated::Simulated;
use super::status::WindowsHypervisorStatus;
use super::vsphere::Vsphere;
use crate::api::machine::LocalReference;

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
