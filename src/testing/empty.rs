//! A hypervisor without VMs.

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Wanted};
use crate::vm::{Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

/// A hypervisor that lists no VMs.
#[derive(Default)]
pub struct Empty {
    pub unfit: Option<String>,
    /// The observed state of any VM, if not absent.
    pub observed: Option<Observed>,
    /// Why no VM can be observed.
    pub unobservable: Option<DriverError>,
    /// The VMs whose observation was requested.
    pub observations: Mutex<Vec<MachineKey>>,
    /// The VMs whose removal was requested.
    pub retired: Mutex<Vec<MachineKey>>,
    /// Whether it may have VMs and hides them.
    pub hides: bool,
    /// Why it creates no VM.
    pub refuses: Option<DriverError>,
    /// The ids that it chooses for a VM.
    pub reserves: Journal,
}

#[async_trait]
impl Driver for Empty {
    fn caps(&self) -> &Caps {
        const SECOND: Duration = Duration::from_secs(1);
        &Caps { driver: "empty", seeds: &[SeedKind::Drive], tick: SECOND, deadline: SECOND, reads: 1, changes: 1 }
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        Ok(Endpoint { id: "empty".into(), version: "1".into(), unfit: self.unfit.clone(), ..Endpoint::default() })
    }

    async fn check(&self, _: &VmSpec, _: SeedKind) -> Result<(), DriverError> {
        self.refuses.clone().map_or(Ok(()), Err)
    }

    async fn plan(&self, _: &MachineKey, _: &VmSpec, _: &Journal) -> Result<Journal, DriverError> {
        Ok(self.reserves.clone())
    }

    async fn list(&self, _: &Wanted) -> Result<Listing, DriverError> {
        Ok(Listing::default())
    }

    async fn observe(&self, key: &MachineKey, _: &Journal) -> Result<Observed, DriverError> {
        self.observations.lock().push(key.clone());
        self.unobservable.clone().map_or_else(|| Ok(self.observed.clone().unwrap_or(Observed::Absent)), Err)
    }

    async fn confirm_absence(&self, _: &MachineKey) -> Result<(), DriverError> {
        if self.hides { Err(DriverError::Denied("grant a right".into())) } else { Ok(()) }
    }

    async fn advance(&self, _: &MachineKey, _: &VmSpec, _: &Seed, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
        Ok(DriverStep::Done)
    }

    async fn detach(&self, _: &MachineKey, _: &Journal) -> Result<DriverStep, DriverError> {
        Ok(DriverStep::Done)
    }

    async fn retire(&self, key: &MachineKey, _: StopMode, _: &Journal, _: &Observed) -> Result<DriverStep, DriverError> {
        self.retired.lock().push(key.clone());
        Ok(DriverStep::Done)
    }
}
