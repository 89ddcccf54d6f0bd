//! The endpoint of a driver's tests, and the machine and the clock for it.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::api::name::HostName;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::Driver;
use crate::hypervisor::wire::WireHook;
use crate::vm::{MacAddress, MachineKey, Nic, SeedKind, VmSpec};

/// An endpoint for tests, with manipulations for the driver's own tests only.
#[async_trait]
pub trait TestEndpoint: Send + Sync {
    /// A new connection to the same endpoint, as from another process.
    fn driver(&self) -> Arc<dyn Driver>;
    /// A new connection with a hook that decides the fate of each request.
    fn wired(&self, hook: WireHook) -> Arc<dyn Driver>;
    /// A connection to the same endpoint over a broken network.
    fn unreachable(&self) -> Arc<dyn Driver>;
    /// The same endpoint with room for exactly two machines of [`TestEndpoint::spec`], if the endpoint itself refuses more.
    fn small(&self) -> Option<Arc<dyn Driver>>;
    /// The machine that the tests create.
    fn spec(&self) -> VmSpec;
    /// How the machines get their seeds.
    fn seed_kind(&self) -> SeedKind {
        SeedKind::Drive
    }
    /// Whether the driver creates anything beside a VM, which may be left over.
    fn has_parts(&self) -> bool {
        true
    }
    /// Creates a foreign VM in the place of `key`'s VM.
    async fn occupy(&self, key: &MachineKey);
    /// Creates the leftovers of a process that was killed during a create call.
    async fn half_made(&self, key: &MachineKey);
    /// Creates the leftovers of a process that was killed during a remove call.
    async fn half_removed(&self, key: &MachineKey);
    /// The seed that the guest finds.
    async fn seed(&self, key: &MachineKey) -> Option<SeedImage>;
    /// Removes the VM without the driver.
    async fn remove_behind_its_back(&self, key: &MachineKey);
    /// The number of machines with any trace at the endpoint, foreign machines included, as counted by an independent reader.
    async fn count(&self) -> usize;
}

/// A clock that follows tokio's, so that waiting in a test takes no time.
pub fn clock() -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    let start = Instant::now();
    Arc::new(move || Timestamp::UNIX_EPOCH + SignedDuration::try_from(start.elapsed()).unwrap())
}

/// The spec of a small machine.
pub fn spec() -> VmSpec {
    VmSpec {
        image: "windows-server-2022".into(),
        cpus: 2,
        memory_mib: 4096,
        system_disk_gib: None,
        disks: Vec::new(),
        nics: vec![Nic { network: None, mac: MacAddress([2, 0, 0, 0, 0, 1]) }],
        uefi: true,
        secure_boot: true,
        tpm: true,
        nested_virtualization: false,
        host_name: HostName::parse("win-1").unwrap(),
    }
}
