//! The settings of the driver `proxmox`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::vsphere::CloneMode;

/// VMs of a Proxmox VE cluster, or of a single node. The Secret of `credentialsRef` has `username`, the full id of an API token like `capw@pve!capw`; `password`, its secret; and `ca.crt`, the authority of the servers' certificates.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.isoStorage == oldSelf.isoStorage").message("isoStorage: cannot change, configuration drives would be left on it: make another WindowsHypervisor"))]
pub struct Proxmox {
    /// Names or addresses of nodes of one cluster, as their certificates have them, with the port if that is not 8006. CAPW uses the first one, and the next one when the first does not answer.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 260)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(server, server.matches('^([-a-zA-Z0-9.]+|[[][0-9a-fA-F:]+[]])(:[0-9]{1,5})?$'))").message("must be like pve1.example.com or pve1.example.com:8006, without https://"))]
    pub servers: Vec<String>,
    /// The nodes on which VMs are created, by their names in the cluster. Each new VM goes to the node with the most memory that is not promised to a VM.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(node, node.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$'))").message("must be names of nodes, like pve1"))]
    pub nodes: Vec<String>,
    /// The resource pool that VMs are put in. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 120))]
    #[x_kube(validation = Rule::new("self.matches('^[-_.a-zA-Z0-9]+(/[-_.a-zA-Z0-9]+){0,2}$')").message("must be the name of a pool, like capw"))]
    pub pool: Option<String>,
    /// The storage of disks that are copied or created. Linked clones are always on the storage of the image. Default: where the image's system disk lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 100))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z][-_.a-zA-Z0-9]*[a-zA-Z0-9]$')").message("must be the name of a storage, like local-lvm"))]
    pub storage: Option<String>,
    /// The storage of configuration drives. It must accept ISO images and exist on all `nodes`, shared or not.
    #[schemars(length(min = 2, max = 100))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z][-_.a-zA-Z0-9]*[a-zA-Z0-9]$')").message("must be the name of a storage, like local"))]
    pub iso_storage: String,
    /// The network of interfaces that name no network: a bridge or an SDN VNet, with a VLAN if needed: `vmbr0`, `vmbr0,tag=114`. Default: that of the image's interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z][-_.a-zA-Z0-9]{0,19}(,tag=[0-9]{1,4})?$')").message("must be like vmbr0 or vmbr0,tag=114"))]
    pub network: Option<String>,
    /// How disks are created from the image: `Linked` shares the disks of the template and takes seconds; `Full` copies them to `storage`; `Auto` is `Linked` unless `storage` is not where the template is.
    #[serde(default)]
    pub clone: CloneMode,
    /// The ids that VMs get.
    #[serde(default)]
    pub ids: VmIds,
}

/// A range of VM ids, both ends included.
#[derive(KubeSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[x_kube(validation = Rule::new("self.first <= self.last").message("first: must not be greater than last"))]
pub struct VmIds {
    /// The lowest id.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub first: i64,
    /// The highest id.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub last: i64,
}

impl Default for VmIds {
    fn default() -> Self {
        Self { first: 20_000, last: 29_999 }
    }
}
