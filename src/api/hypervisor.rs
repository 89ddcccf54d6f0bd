//! `WindowsHypervisor`: an endpoint that provides VMs, with exactly one driver, and what machines may take there.
//!
//! This file is the API's one list of drivers: a new driver gets a file below, a name in [`DRIVERS`], a variant of [`ChosenDriver`] and a field of
//! the spec. The rules of the schema follow from [`DRIVERS`].

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::machine::LocalReference;

mod libvirt;
mod proxmox;
mod simulated;
mod status;
mod vsphere;

pub use self::libvirt::{Acceleration, Console, DeviceModel, GuestWords, Libvirt};
pub use self::proxmox::{Proxmox, VmIds};
pub use self::simulated::{Fault, GuestKind, Simulated, SimulatedCapacity, SimulatedDelays, SimulatedFault};
pub use self::status::{HypervisorCapacity, HypervisorUse, WindowsHypervisorStatus};
pub use self::vsphere::{CloneMode, Vsphere};

/// The names of the drivers, in the order of the fields of the spec that have these names.
pub const DRIVERS: [&str; 4] = ["simulated", "libvirt", "vsphere", "proxmox"];

/// The driver that an object names, with its settings.
#[derive(Clone, Copy, Debug)]
pub enum ChosenDriver<'a> {
    Simulated(&'a Simulated),
    Libvirt(&'a Libvirt),
    Vsphere(&'a Vsphere),
    Proxmox(&'a Proxmox),
}

impl ChosenDriver<'_> {
    /// Returns the name of the driver, one of [`DRIVERS`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simulated(_) => "simulated",
            Self::Libvirt(_) => "libvirt",
            Self::Vsphere(_) => "vsphere",
            Self::Proxmox(_) => "proxmox",
        }
    }
}

/// Returns the rule that exactly one driver is set: `[has(self.simulated), …].exists_one(driver, driver)`.
fn has_one_driver() -> String {
    format!("[{}].exists_one(driver, driver)", DRIVERS.map(|name| format!("has(self.{name})")).join(", "))
}

/// Returns what a user reads whose object breaks that rule.
fn name_one_driver() -> String {
    let [first @ .., last] = DRIVERS;
    format!("name exactly one driver of {} and {last}, e.g. spec.simulated: {{}}", first.join(", "))
}

/// Returns the rule that the driver stays: `has(self.simulated) == has(oldSelf.simulated) && …`.
fn keeps_its_driver() -> String {
    DRIVERS.map(|name| format!("has(self.{name}) == has(oldSelf.{name})")).join(" && ")
}

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
#[x_kube(validation = Rule::new(has_one_driver()).message(name_one_driver().as_str()))]
#[x_kube(validation = Rule::new(keeps_its_driver()).message("the driver cannot change, the VMs would be lost: make another WindowsHypervisor"))]
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
    /// Returns the drivers that are set. An object that the schema admits has exactly one.
    fn drivers(&self) -> impl Iterator<Item = ChosenDriver<'_>> {
        let simulated = self.simulated.as_ref().map(ChosenDriver::Simulated);
        let libvirt = self.libvirt.as_ref().map(ChosenDriver::Libvirt);
        let vsphere = self.vsphere.as_ref().map(ChosenDriver::Vsphere);
        let proxmox = self.proxmox.as_ref().map(ChosenDriver::Proxmox);
        [simulated, libvirt, vsphere, proxmox].into_iter().flatten()
    }

    /// Returns the driver that is set; `None` if it is none or more than one.
    pub fn chosen(&self) -> Option<ChosenDriver<'_>> {
        let mut drivers = self.drivers();
        drivers.next().filter(|_| drivers.next().is_none())
    }

    /// Name of the driver that is set.
    pub fn driver(&self) -> Option<&'static str> {
        self.drivers().next().map(ChosenDriver::name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_has_the_name_of_its_field() {
        let specs = DRIVERS.map(|name| match name {
            "simulated" => WindowsHypervisorSpec { simulated: Some(Simulated::default()), ..WindowsHypervisorSpec::default() },
            "libvirt" => WindowsHypervisorSpec { libvirt: Some(Libvirt::default()), ..WindowsHypervisorSpec::default() },
            "vsphere" => WindowsHypervisorSpec { vsphere: Some(Vsphere::default()), ..WindowsHypervisorSpec::default() },
            "proxmox" => WindowsHypervisorSpec { proxmox: Some(Proxmox::default()), ..WindowsHypervisorSpec::default() },
            _ => panic!("{name}: add its settings here"),
        });
        for (spec, name) in specs.iter().zip(DRIVERS) {
            assert_eq!((spec.driver(), spec.chosen().map(ChosenDriver::name)), (Some(name), Some(name)));
            assert!(serde_json::to_value(spec).unwrap()[name].is_object(), "{name} is a field");
        }
    }

    #[test]
    fn one_driver_is_chosen_or_none() {
        let none = WindowsHypervisorSpec::default();
        assert!(none.chosen().is_none() && none.driver().is_none());
        let two = WindowsHypervisorSpec { simulated: Some(Simulated::default()), vsphere: Some(Vsphere::default()), ..none };
        assert!(two.chosen().is_none(), "which of two is unknown");
        assert_eq!(two.driver(), Some("simulated"));
    }

    #[test]
    fn the_rules_of_the_schema_name_every_driver() {
        for name in DRIVERS {
            let field = format!("has(self.{name})");
            assert!(has_one_driver().contains(&field) && keeps_its_driver().contains(&format!("{field} == has(oldSelf.{name})")), "{name}");
            assert!(name_one_driver().contains(name), "{name}");
        }
    }
}
