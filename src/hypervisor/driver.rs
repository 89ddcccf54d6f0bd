//! The driver contract: the calls that a driver offers, its limits, and the outcomes of its calls.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::gate::Kept;
use super::listing::{Listing, Wanted};
use crate::vm::{DriverError, Endpoint, Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

/// One connection to one endpoint, shared by all machines on it.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Returns the driver's capabilities, limits and intervals.
    fn caps(&self) -> &Caps;

    /// Logs in and reads identity, version, capacity and missing permissions. No side effects.
    async fn describe(&self) -> Result<Endpoint, DriverError>;

    /// Checks that the image and networks of the spec exist, and that the driver can deliver a seed of that kind. No side effects.
    async fn check(&self, spec: &VmSpec, seed: SeedKind) -> Result<(), DriverError>;

    /// Checks whether the image boots with the firmware that the spec requires. No side effects. By default the driver does not know.
    async fn image_firmware(&self, _spec: &VmSpec) -> Result<ImageFirmware, DriverError> {
        Ok(ImageFirmware::NotLookedAt(format!("the driver {} does not read images", self.caps().driver)))
    }

    /// Keeps a place for the change that follows a read, until that change or until the value is dropped; fails with
    /// [`DriverError::Busy`] when no place is free. By default there is no limit.
    fn keep_place(&self, _key: &MachineKey) -> Result<Option<Kept>, DriverError> {
        Ok(None)
    }

    /// Lists all VMs at this endpoint with our owner mark, and the leftovers of deleted VMs.
    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError>;

    /// Reads everything that belongs to this machine, consistently and also with an empty journal.
    async fn observe(&self, key: &MachineKey, journal: &Journal) -> Result<Observed, DriverError>;

    /// Confirms that [`Observed::Absent`] proves that nothing of the machine exists: an error explains why the endpoint may be hiding something.
    /// Called before the absence of a VM ends its machine. By default one observation is proof.
    async fn confirm_absence(&self, _key: &MachineKey) -> Result<(), DriverError> {
        Ok(())
    }

    /// Chooses ids (VMID, host, folder). No side effects. The caller stores the result before it calls [`Driver::advance`].
    /// By default there is nothing to choose: name and UUID are computed.
    async fn plan(&self, _key: &MachineKey, _spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        Ok(journal.clone())
    }

    /// Moves the machine towards "runs with this seed". A long task is the last request of a call.
    async fn advance(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// Moves a machine that does not need its seed any more towards "its seed is detached". The machine keeps running, and
    /// [`Driver::advance`] does not attach the seed again. [`DriverError::Invalid`] explains why a hypervisor cannot detach the seed.
    async fn detach(&self, key: &MachineKey, journal: &Journal) -> Result<DriverStep, DriverError>;

    /// Moves the machine towards "nothing left". Reads the owner mark again before it destroys anything.
    async fn retire(&self, key: &MachineKey, how: StopMode, journal: &Journal, observed: &Observed) -> Result<DriverStep, DriverError>;

    /// Streams hints. An item means "list now": something may have changed. An item alone decides nothing.
    fn hints(&self) -> Option<BoxStream<'static, ()>> {
        None
    }
}

/// A driver's capabilities, limits and intervals.
#[derive(Clone, Debug)]
pub struct Caps {
    /// The name of the driver, e.g. `simulated`; a label of metrics.
    pub driver: &'static str,
    pub seeds: &'static [SeedKind],
    /// The time between two listings.
    pub tick: Duration,
    /// The time limit of one call.
    pub deadline: Duration,
    /// The most concurrent reads and changes of machines.
    pub reads: usize,
    pub changes: usize,
}

/// The outcome of [`Driver::advance`], [`Driver::detach`] and [`Driver::retire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverStep {
    /// The goal is reached; the call changed nothing.
    Done,
    /// A task is in progress: poll again after that time.
    Wait { after: Duration },
    /// A long task was started; the journal must be stored.
    Started { journal: Journal },
    /// A task of the journal has failed. The journal without the task must be stored, or the next call reads the same failure.
    Failed { journal: Journal, error: DriverError },
    /// Something was changed: poll again.
    Changed,
}

/// Whether an image boots with the firmware that a machine requires, each with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageFirmware {
    Fits(String),
    /// The image does not boot with that firmware; the text has the field and the remedy.
    Differs(String),
    /// The driver could not find out.
    NotLookedAt(String),
}
