//! The settings of the driver `vsphere`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// VMs of a vCenter. The Secret of `credentialsRef` has `username`, `password` and `ca.crt`, the authority of the vCenter's certificate.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.datacenter == oldSelf.datacenter && has(self.folder) == has(oldSelf.folder) && (!has(self.folder) || self.folder == oldSelf.folder)").message("datacenter, folder: cannot change, the VMs would be lost: make another WindowsHypervisor"))]
pub struct Vsphere {
    /// Name or address of the vCenter, as its certificate has it, with its port if that is not 443.
    #[schemars(length(min = 1, max = 260))]
    #[x_kube(validation = Rule::new("self.matches('^([-a-zA-Z0-9.]+|[[][0-9a-fA-F:]+[]])(:[0-9]{1,5})?$')").message("must be like vcenter.example.com or vcenter.example.com:443, without https://"))]
    pub server: String,
    /// The name of the datacenter; below a folder of datacenters: `FOLDER/NAME`.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+(/[^/]+)*$')").message("must be a path without / at its ends, e.g. dc1"))]
    pub datacenter: String,
    /// The folder in which VMs are created, as a path below the datacenter's folder of VMs, e.g. `capw/lab`. VM names are unique in it. Give each WindowsHypervisor its own folder. Default: the datacenter's folder of VMs itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+(/[^/]+)*$')").message("must be a path without / at its ends, e.g. capw/lab"))]
    pub folder: Option<String>,
    /// The resource pool that VMs run in, as a path below the datacenter's folder of hosts: `CLUSTER/Resources` for the whole cluster, `CLUSTER/Resources/POOL` for a pool of it.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+(/[^/]+)+$')").message("must be a path like cluster1/Resources or cluster1/Resources/capw"))]
    pub resource_pool: String,
    /// The datastore of the disks, or a cluster of datastores, in which each machine gets the datastore with the most room; below a folder: `FOLDER/NAME`.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+(/[^/]+)*$')").message("must be a path without / at its ends, e.g. ds1"))]
    pub datastore: String,
    /// The network of interfaces that name no network: a standard or distributed port group, or an NSX segment. Default: that of the image's interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    pub network: Option<String>,
    /// A VM group of the pool's cluster to which machines are added before they start, for DRS rules that an administrator creates: e.g. that they run only on hosts that are licensed for Windows. CAPW creates no rules. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 80))]
    pub vm_group: Option<String>,
    /// How disks are created from the image: `Linked` shares the disks of its newest snapshot and takes seconds; `Full` copies them; `Auto` is `Linked` if the image has a snapshot and the machine requests no other size of its system disk.
    #[serde(default)]
    pub clone: CloneMode,
}

/// How disks are created from the image.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum CloneMode {
    /// Linked if possible.
    #[default]
    Auto,
    /// A disk with only the differences from the image; on a vCenter, from its newest snapshot.
    Linked,
    /// A copy.
    Full,
}
