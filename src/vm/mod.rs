//! WHAT A VM IS: the types that decisions and drivers share.

mod driver_error;
mod failure_code;
mod report;

use std::collections::BTreeMap;
use std::fmt;

use crate::api::name::{HostName, VmUuid};

pub use driver_error::DriverError;
pub use failure_code::FailureCode;
pub use report::{GuestReport, REPORT_LINE, REPORT_PLAN, state};

/// The identity of a VM: its own, and the cluster that owns it. Both are known before the VM exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineKey {
    /// UUID of the VM, the last part of its provider ID.
    pub vm: VmUuid,
    /// `<namespace>/<name>` of the Cluster; unlike UIDs, it survives `clusterctl move`.
    pub cluster: String,
    /// Name of the VM on the hypervisor: that of the WindowsMachine.
    pub name: String,
}

impl MachineKey {
    /// The mark that a driver puts on everything it creates, and checks before it destroys anything.
    pub fn owner_mark(&self) -> String {
        format!("{}{}", self.machine_mark(), self.cluster)
    }

    /// Whether a mark names this machine, whatever cluster it names.
    pub fn is_named_by(&self, mark: &str) -> bool {
        mark.starts_with(&self.machine_mark())
    }

    fn machine_mark(&self) -> String {
        format!("capw-machine={};capw-cluster=", self.vm)
    }
}

/// The desired VM, resolved and valid: a driver translates it and adds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    pub image: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// `None`: as in the image.
    pub system_disk_gib: Option<u64>,
    pub disks: Vec<VmDisk>,
    /// Names of networks; empty means the hypervisor's default network.
    pub networks: Vec<String>,
    pub uefi: bool,
    pub secure_boot: bool,
    pub tpm: bool,
    pub nested_virtualization: bool,
    pub host_name: HostName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmDisk {
    pub name: String,
    pub gib: u64,
}

/// What a driver reserved or started (ids, tasks), stored in the machine's status before the driver acts on it.
pub type Journal = BTreeMap<String, String>;

/// The data for a VM's first start. It holds the join token: never logged.
#[derive(Clone, PartialEq, Eq)]
pub enum Seed {
    /// An image to attach as a CD: ISO 9660 with Joliet; the label names the program that reads it.
    Drive(Vec<u8>),
    /// VMware's extra configuration: values by key, e.g. `guestinfo.userdata`.
    GuestInfo(BTreeMap<String, String>),
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drive(image) => write!(f, "Drive({} bytes)", image.len()),
            Self::GuestInfo(values) => f.debug_tuple("GuestInfo").field(&values.keys()).finish(),
        }
    }
}

/// The result of one consistent read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Neither a VM nor a disk nor a seed exists.
    Absent,
    /// Something with this name or identity exists without our owner mark. It is never touched.
    Foreign {
        what: String,
        /// Its mark names this machine, in another cluster: whether it is ours is in doubt.
        is_marked: bool,
    },
    Present(Present),
}

/// A VM with our owner mark, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub power: Power,
    /// Its seed is attached.
    pub seeded: bool,
    /// False if only leftovers (disk, seed) exist.
    pub vm: bool,
    pub addresses: Vec<String>,
    /// The newest report of the guest.
    pub report: Option<GuestReport>,
}

/// The power state as the hypervisor reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Still being created: it has no power state yet.
    Creating,
    Off,
    On,
    Stopping,
}

/// How a VM is stopped before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Ask the guest to shut down, and cut the power after the driver's deadline.
    Graceful,
    /// Cut the power.
    Hard,
}
