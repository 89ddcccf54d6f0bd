//! THE TYPES OF A VM that decisions and drivers share.

mod driver_error;
mod endpoint;
mod failure_code;
mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

pub use self::driver_error::{DriverError, Thing};
pub use self::endpoint::Endpoint;
pub use self::failure_code::FailureCode;
pub use self::report::{GuestReport, REPORT_LINE, REPORT_PLAN, state};
use crate::api::name::{HostName, VmUuid};

/// The parts of an owner mark before the UUID, and before the cluster.
const MARK_MACHINE: &str = "capw-machine=";
const MARK_CLUSTER: &str = ";capw-cluster=";

/// The identity of a VM: its own, and its owner cluster. Both are known before the VM exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineKey {
    /// UUID of the VM, the last part of its provider ID.
    pub vm: VmUuid,
    /// `<namespace>/<name>` of the Cluster; unlike UIDs, it survives `clusterctl move`.
    pub cluster: String,
    /// Name of the WindowsMachine.
    pub name: String,
}

impl MachineKey {
    /// Returns the mark that a driver puts on everything it creates, and checks before it destroys anything.
    pub fn owner_mark(&self) -> String {
        format!("{}{}", self.machine_mark(), self.cluster)
    }

    /// Whether a mark names this machine, with any cluster.
    pub fn is_named_by(&self, mark: &str) -> bool {
        mark.starts_with(&self.machine_mark())
    }

    fn machine_mark(&self) -> String {
        format!("{MARK_MACHINE}{}{MARK_CLUSTER}", self.vm)
    }

    /// Returns the key of a VM with that mark, created for the WindowsMachine of that name; `None` if the mark is not ours.
    pub fn of_mark(mark: &str, name: &str) -> Option<Self> {
        let (vm, cluster) = mark.strip_prefix(MARK_MACHINE)?.split_once(MARK_CLUSTER)?;
        let key = Self { vm: VmUuid(uuid::Uuid::try_parse(vm).ok()?), cluster: cluster.to_owned(), name: name.to_owned() };
        (key.owner_mark() == mark && !name.is_empty()).then_some(key)
    }

    /// Returns the name of the VM on a hypervisor whose names may have `limit` characters: the name of the WindowsMachine, cut, and eight digits of
    /// the UUID, since two clusters may have machines of the same name.
    pub fn vm_name(&self, limit: usize) -> String {
        let id = self.vm.0.simple().to_string();
        let digits = id.get(..8).unwrap_or(&id);
        let start: String = self.name.chars().take(limit.saturating_sub(digits.len() + 1)).collect();
        format!("{}-{digits}", start.trim_end_matches(['-', '.']))
    }
}

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

/// The address of a network interface, computed before the VM exists: locally administered, from the VM's UUID and the number of the
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    pub fn of(vm: VmUuid, index: usize) -> Self {
        let digest = Sha256::new().chain_update(vm.0.as_bytes()).chain_update(index.to_be_bytes()).finalize();
        let [a, b, c, d, e, ..] = <[u8; 32]>::from(digest);
        Self([2, a, b, c, d, e])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The ids and tasks that a driver reserved or started, stored in the machine's status before the driver uses them.
pub type Journal = BTreeMap<String, String>;

/// The data for a VM's first start. It contains the join token and is never logged.
#[derive(Clone, PartialEq, Eq)]
pub enum Seed {
    /// The files of a CD to attach; its label names the program that reads it.
    Drive { label: &'static str, files: BTreeMap<String, Vec<u8>> },
    /// VMware's extra configuration: values by key, e.g. `guestinfo.userdata`.
    GuestInfo(BTreeMap<String, String>),
}

/// How a seed gets into a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedKind {
    Drive,
    GuestInfo,
}

impl Seed {
    pub fn kind(&self) -> SeedKind {
        match self {
            Self::Drive { .. } => SeedKind::Drive,
            Self::GuestInfo(_) => SeedKind::GuestInfo,
        }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drive { label, files } => write!(f, "Drive({label}: {:?})", files.keys()),
            Self::GuestInfo(values) => f.debug_tuple("GuestInfo").field(&values.keys()).finish(),
        }
    }
}

/// The result of one consistent read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// No VM, disk or seed exists.
    Absent,
    /// An object with this name or identity exists without our owner mark. It is never touched.
    Foreign {
        what: String,
        /// Whether its mark names this machine in another cluster: then its owner is in doubt.
        is_marked: bool,
    },
    Present(Present),
}

/// A VM with our owner mark, or its leftovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub power: Power,
    pub seeded: Seeded,
    /// False if only leftovers (disk, seed) exist.
    pub vm: bool,
    /// The sorted addresses that are of use to others ([`usable`]).
    pub addresses: Vec<IpAddr>,
    /// The newest report of the guest.
    pub report: Option<GuestReport>,
    /// The hypervisor's message why a VM that is on does not run.
    pub trouble: Option<String>,
    /// The hypervisor's warning while the VM runs. It affects only the report.
    pub warning: Option<String>,
}

/// Whether a VM's seed is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeded {
    No,
    Yes,
    /// The seed is detached for the next start; the running guest still has it.
    UntilRestart,
}

impl Seeded {
    pub fn from_attached(attached: bool) -> Self {
        if attached { Self::Yes } else { Self::No }
    }
}

/// Returns the addresses at which others reach a VM, sorted and without duplicates: no loopback, link-local or unspecified ones.
pub fn usable(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let reachable = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !(v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast()),
    };
    let found: std::collections::BTreeSet<IpAddr> = addresses.into_iter().filter(reachable).collect();
    found.into_iter().collect()
}

/// The power state as the hypervisor reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The VM is still being created: it has no power state yet.
    Creating,
    Off,
    On,
    Stopping,
}

/// How a VM is stopped before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Ask the guest to shut down, and poll again.
    Graceful,
    /// Cut the power.
    Hard,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_a_hypervisor_differ_even_if_those_of_the_machines_do_not() {
        let key = |name: &str, uid: &str| MachineKey { vm: VmUuid::of(uid), cluster: "lab/one".into(), name: name.into() };
        let digits = &VmUuid::of("a").to_string()[..8];
        assert_eq!(key("win-7k2fq", "a").vm_name(63), format!("win-7k2fq-{digits}"));
        assert_ne!(key("win-7k2fq", "b").vm_name(63), key("win-7k2fq", "a").vm_name(63));
        let long = key(&"x".repeat(253), "a").vm_name(63);
        assert!(long.len() == 63 && long.ends_with(digits), "{long}");
        assert_eq!(key("a-very.long-name", "a").vm_name(16), format!("a-very-{digits}"), "no dot or dash before the digits");
    }

    #[test]
    fn a_mark_names_its_machine() {
        let key = MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win-1".into() };
        assert_eq!(MachineKey::of_mark(&key.owner_mark(), "win-1"), Some(key.clone()));
        for (mark, name) in
            [("", "win-1"), ("capw-machine=x;capw-cluster=lab/one", "win-1"), (&key.owner_mark()[1..], "win-1"), (&key.owner_mark(), "")]
        {
            assert_eq!(MachineKey::of_mark(mark, name), None, "{mark}");
        }
    }

    #[test]
    fn each_interface_has_an_address_of_its_own_that_never_changes() {
        let of = |index| MacAddress::of(VmUuid::of("a"), index).to_string();
        assert_eq!((of(0), of(0) == of(1)), ("02:".to_owned() + &of(0)[3..], false));
        assert_ne!(MacAddress::of(VmUuid::of("b"), 0), MacAddress::of(VmUuid::of("a"), 0));
    }

    #[test]
    fn addresses_are_those_that_others_can_use_in_one_order() {
        let all = ["fe80::1", "10.0.0.9", "169.254.3.4", "127.0.0.1", "::1", "10.0.0.10", "2001:db8::1", "10.0.0.9", "0.0.0.0"];
        let found = usable(all.iter().map(|text| text.parse().unwrap()));
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.9", "10.0.0.10", "2001:db8::1"]);
    }
}
