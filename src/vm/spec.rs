//! The desired VM.

use super::mac_address::MacAddress;
use crate::api::name::HostName;

/// The desired VM, resolved and valid: a driver translates it and adds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    pub image: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// The size of the system disk; `None`: as in the image.
    pub system_disk_gib: Option<u64>,
    pub disks: Vec<VmDisk>,
    pub nics: Vec<Nic>,
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

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The network; `None`: the hypervisor's default network.
    pub network: Option<String>,
    pub mac: MacAddress,
}
