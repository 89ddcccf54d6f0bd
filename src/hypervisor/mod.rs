//! WHERE VMS COME FROM: one trait, one folder per driver.
//!
//! A driver translates and calls; it decides nothing, knows no Kubernetes object and writes no status. Its contract
//! (docs/design/drivers.md): after any prefix of the requests of one [`Driver::advance`], [`Driver::detach`] or [`Driver::retire`],
//! [`Driver::observe`] sees what is there and the next call goes on; a foreign VM is never touched; absence is proven by reading VM, disks
//! and configuration drive.

#[cfg(test)]
mod contract;
pub mod drivers;
mod fresh;
mod gate;
mod gates;
mod https;
mod libvirt;
pub mod login;
mod machine;
pub mod observed;
pub mod prove;
mod proxmox;
mod shutdowns;
mod simulated;
mod ssh;
mod tls;
mod vsphere;
mod wire;
mod xml;

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

pub use self::gate::Kept;
pub use crate::vm::DriverError;

use crate::api::name::VmUuid;
use crate::vm::{Journal, MachineKey, Observed, Present, Seed, SeedKind, StopMode, VmSpec};

/// One connection to one endpoint, shared by all machines on it.
#[async_trait]
pub trait Driver: Send + Sync {
    /// What the driver can do, and how it wants to be called.
    fn caps(&self) -> &Caps;

    /// Logs in and reads identity, version, capacity and missing permissions. No side effects.
    async fn describe(&self) -> Result<Endpoint, DriverError>;

    /// Whether what the spec names (image, networks) exists, and whether a seed of that kind can be given. No side effects.
    async fn check(&self, spec: &VmSpec, seed: SeedKind) -> Result<(), DriverError>;

    /// Whether the image starts by the firmware that the spec asks for. No side effects. By default nothing is known of it.
    async fn image_firmware(&self, _spec: &VmSpec) -> Result<ImageFirmware, DriverError> {
        Ok(ImageFirmware::NotLookedAt(format!("the driver {} does not read images", self.caps().driver)))
    }

    /// Keeps a place for the change that follows a look, until that change or until the value is dropped; fails with
    /// [`DriverError::Busy`] when there is none. By default there is no limit.
    fn keep_place(&self, _key: &MachineKey) -> Result<Option<Kept>, DriverError> {
        Ok(None)
    }

    /// All VMs at this endpoint with our owner mark, by one listing, and what is left of others.
    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError>;

    /// One consistent read of everything that belongs to this machine, also with an empty journal.
    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError>;

    /// Whether [`Observed::Absent`] proves that nothing of the machine is there: an error says why the endpoint may be hiding something. Asked
    /// before absence ends a machine. By default a look proves it.
    async fn confirm_absence(&self, _key: &MachineKey) -> Result<(), DriverError> {
        Ok(())
    }

    /// Chooses ids (VMID, host, folder). No side effects. The caller stores the result before it calls [`Driver::advance`].
    /// By default there is nothing to choose: name and UUID are computed.
    async fn plan(&self, _key: &MachineKey, _spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        Ok(journal.clone())
    }

    /// Goes on towards "runs with this seed". A task that takes long is the last request of a call.
    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// Goes on towards "its seed is detached", for a machine that does not need it any more. The machine keeps running, and
    /// [`Driver::advance`] does not attach the seed again. [`DriverError::Invalid`] says why a hypervisor cannot detach it.
    async fn detach(&self, key: &MachineKey, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// Goes on towards "nothing left". Reads the owner mark again before it destroys anything.
    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// An item means "list now": something has changed. Nothing is decided on its word.
    fn hints(&self) -> Option<BoxStream<'static, ()>> {
        None
    }
}

/// What a driver can do, and how it wants to be called.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Name of the driver, e.g. `simulated`; a label of metrics.
    pub driver: &'static str,
    pub seeds: &'static [SeedKind],
    /// Between two listings.
    pub tick: Duration,
    /// Time limit of one call.
    pub deadline: Duration,
    /// Reads and changes of machines at the same time.
    pub reads: usize,
    pub changes: usize,
}

/// What [`Driver::advance`], [`Driver::detach`] and [`Driver::retire`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverStep {
    /// The goal is reached: nothing was done.
    Done,
    /// Something is in progress: poll again after that time.
    Wait { after: Duration },
    /// A long task was started; the journal must be stored.
    Started { journal: Journal },
    /// A task of the journal has failed. The journal without it must be stored, or the same failure is read again.
    Failed { journal: Journal, error: DriverError },
    /// Something was changed: poll again.
    Changed,
}

/// What an endpoint reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Stays the same as long as the VMs do: another id means another hypervisor, or one that was reinstalled.
    pub id: String,
    pub version: String,
    pub cpus: Option<i64>,
    pub memory_mib: Option<u64>,
    /// Permissions that the credentials lack, with what each is for.
    pub lacks: Vec<String>,
    /// Why it cannot run VMs as its settings ask for them, with what was seen and the remedy.
    pub unfit: Option<String>,
}

/// Whether an image starts by the firmware that a machine asks for; each says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageFirmware {
    Fits(String),
    /// It does not; the text has the field and the remedy.
    Differs(String),
    /// Nothing was found out.
    NotLookedAt(String),
}

/// What a listing must contain beside the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// VMs whose guest has not sent its final report.
    pub awaiting_reports: BTreeSet<VmUuid>,
}

/// What is at an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// By VM.
    pub rows: Vec<Row>,
    /// By VM and text.
    pub leftovers: Vec<Leftover>,
}

/// A VM with our owner mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: MachineKey,
    pub present: Present,
    pub cpus: u32,
    pub memory_mib: u64,
}

/// Something with our mark or name, but without its VM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// What and where it is.
    pub what: String,
}
