//! WHERE VMS COME FROM: one trait, one folder per driver.
//!
//! A driver translates and calls; it decides nothing, knows no Kubernetes object and writes no status. Its contract
//! (docs/design/drivers.md): at most one mutating call per [`Driver::advance`] or [`Driver::retire`], safe to repeat; a foreign VM is
//! never touched; absence is proven by reading VM, disks and config drive.

#[cfg(test)]
mod contract;
pub mod drivers;
pub mod observed;
mod simulated;

use std::time::Duration;

use async_trait::async_trait;

pub use crate::vm::DriverError;

use crate::vm::{Journal, MachineKey, Observed, Power, Seed, StopMode, VmSpec};

/// One connection to one endpoint, shared by all machines on it.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Name of the driver, e.g. `simulated`; a label of metrics.
    fn name(&self) -> &'static str;

    /// Logs in and reads version and capacity. No side effects.
    async fn describe(&self) -> Result<Endpoint, DriverError>;

    /// Whether what the spec names (image, networks) exists. No side effects.
    async fn check(&self, spec: &VmSpec) -> Result<(), DriverError>;

    /// One consistent read of everything that belongs to this machine.
    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError>;

    /// Chooses ids (VMID, host, folder). No side effects. The caller stores the result before it calls [`Driver::advance`].
    async fn plan(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError>;

    /// Makes at most one mutating call towards "runs with this seed".
    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// Makes at most one mutating call towards "its seed is detached", for a machine that does not need it any more. The machine keeps
    /// running, and [`Driver::advance`] does not attach the seed again. [`DriverError::Invalid`] says why a hypervisor cannot detach it.
    async fn detach(&self, key: &MachineKey, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// Makes at most one mutating call towards "nothing left". Reads the owner mark again before it destroys anything.
    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// All VMs at this endpoint with our owner mark, by one listing.
    async fn owned(&self) -> Result<Vec<OwnedVm>, DriverError>;
}

/// What [`Driver::advance`], [`Driver::detach`] and [`Driver::retire`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverStep {
    /// The goal is reached: nothing was done.
    Done,
    /// Something is in progress: look again after that time.
    Wait { after: Duration },
    /// A long task was started; the journal must be stored.
    Started { journal: Journal },
    /// One change was made: look again.
    Changed,
}

/// What an endpoint reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    pub version: String,
    pub cpus: Option<i64>,
    pub memory_mib: Option<u64>,
}

/// One row of [`Driver::owned`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedVm {
    pub key: MachineKey,
    pub power: Power,
    /// Its seed is attached.
    pub seeded: bool,
    pub addresses: Vec<String>,
    pub report: Option<crate::vm::GuestReport>,
}
