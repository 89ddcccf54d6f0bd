//! WHERE VMS COME FROM: one trait, one folder per driver.
//!
//! A driver translates and calls; it decides nothing, knows no Kubernetes object and writes no status. Its rules are those of
//! `hypervisors.md` §9: at most one mutating call per [`Driver::advance`] or [`Driver::retire`], safe to repeat; a foreign VM is
//! never touched; absence is proven by a read of VM, disks and config drive.

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

    /// Logs in and reads version and capacity. No side effect.
    async fn describe(&self) -> Result<Endpoint, DriverError>;

    /// Does what the spec names (image, networks) exist? No side effect.
    async fn check(&self, spec: &VmSpec) -> Result<(), DriverError>;

    /// One consistent read of everything that belongs to this machine.
    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError>;

    /// Chooses ids (VMID, host, folder) without side effects. The caller stores the result before it calls [`Driver::advance`].
    async fn plan(&self, key: &MachineKey, spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError>;

    /// At most one mutating call towards "runs with this config drive".
    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<Step, DriverError>;

    /// At most one mutating call towards "its seed is not attached", for a machine that has read it for the last time. The machine runs
    /// on, and [`Driver::advance`] does not attach it again. [`DriverError::Invalid`]: this hypervisor cannot do so, and why.
    async fn detach(&self, key: &MachineKey, journal: &Journal, observed: &Observed) -> Result<Step, DriverError>;

    /// At most one mutating call towards "nothing left". Re-reads the owner mark before it destroys.
    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, observed: &Observed) -> Result<Step, DriverError>;

    /// Every VM at this endpoint with an owner mark of ours: one listing, however many there are.
    async fn owned(&self) -> Result<Vec<OwnedVm>, DriverError>;
}

/// What [`Driver::advance`], [`Driver::detach`] and [`Driver::retire`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do: the goal is reached.
    Done,
    /// Something is under way; look again after that time.
    Wait { after: Duration },
    /// A long task was started; the journal must be stored.
    Started { journal: Journal },
    /// One change was made; look again.
    Changed,
}

/// What an endpoint says of itself.
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
