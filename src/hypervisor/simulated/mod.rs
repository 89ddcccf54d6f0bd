//! The `simulated` driver: VMs are directories, power is a line in a file, guests are tasks.
//!
//! All state of a VM is on disk, so that it survives a kill of the operator at any moment and two operators can share it. This file is
//! the asynchronous interface; [`datacenter`] has the rules and [`record`] the files.

mod datacenter;
mod fault;
pub mod guest;
pub mod record;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use self::datacenter::Datacenter;
use super::wire::Wire;
use super::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Wanted};
use crate::api::hypervisor::Simulated;
use crate::vm::{Journal, MachineKey, Observed, Seed, SeedKind, StopMode, VmSpec};

/// The clock of the process; tests pass their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

const CAPS: Caps = Caps {
    driver: "simulated",
    seeds: &[SeedKind::Drive, SeedKind::GuestInfo],
    tick: Duration::from_secs(10),
    deadline: Duration::from_secs(30),
    reads: 8,
    changes: 4,
};

/// A connection to one simulated data centre.
pub struct SimulatedDriver {
    datacenter: Arc<Datacenter>,
    clock: Clock,
    wire: Wire,
}

impl SimulatedDriver {
    /// `default_name` is the data centre's name unless the settings have one; `state` is the directory of all data centres. Nothing is
    /// written to disk before the first VM is created.
    pub fn new(state: &Path, default_name: &str, settings: Simulated, clock: Clock, wire: Wire) -> Result<Self, DriverError> {
        let datacenter = Arc::new(Datacenter::new(state, default_name, settings)?);
        Ok(Self { datacenter, clock, wire })
    }

    async fn read<T, F>(&self, name: &'static str, work: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&Datacenter, Timestamp) -> Result<T, DriverError> + Send + 'static,
    {
        self.wire.read(name, self.call(work)).await
    }

    async fn change<T, F>(&self, name: &'static str, work: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&Datacenter, Timestamp) -> Result<T, DriverError> + Send + 'static,
    {
        self.wire.change(name, self.call(work)).await
    }

    /// Runs one call of the data centre on a thread that may block.
    async fn call<T, F>(&self, work: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&Datacenter, Timestamp) -> Result<T, DriverError> + Send + 'static,
    {
        let (datacenter, now) = (self.datacenter.clone(), (self.clock)());
        datacenter.reachable()?;
        tokio::task::spawn_blocking(move || work(&datacenter, now))
            .await
            .map_err(|error| DriverError::Unknown(format!("a call of the simulated hypervisor was interrupted: {error}; it is retried")))?
    }
}

#[async_trait]
impl Driver for SimulatedDriver {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        self.read("describe", |datacenter, _| Ok(datacenter.describe())).await
    }

    async fn check(&self, spec: &VmSpec, _seed: SeedKind) -> Result<(), DriverError> {
        let spec = spec.clone();
        self.read("check", move |datacenter, _| datacenter.check(&spec)).await
    }

    async fn list(&self, _wanted: &Wanted) -> Result<Listing, DriverError> {
        self.read("list", |datacenter, now| datacenter.list(now)).await
    }

    async fn observe(&self, key: &MachineKey, _journal: &Journal) -> Result<Observed, DriverError> {
        let key = key.clone();
        self.read("observe", move |datacenter, now| datacenter.observe(&key, now)).await
    }

    async fn plan(&self, _key: &MachineKey, _spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        // The UUID is the directory name: there is nothing to choose.
        Ok(journal.clone())
    }

    async fn advance(
        &self,
        key: &MachineKey,
        spec: &VmSpec,
        seed: &Seed,
        _journal: &Journal,
        _observed: &Observed,
    ) -> Result<DriverStep, DriverError> {
        let (key, spec, seed) = (key.clone(), spec.clone(), seed.clone());
        self.change("advance", move |datacenter, now| datacenter.advance(&key, &spec, &seed, now)).await
    }

    async fn detach(&self, key: &MachineKey, _journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let key = key.clone();
        self.change("detach", move |datacenter, _| datacenter.detach(&key)).await
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, _journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let key = key.clone();
        self.change("retire", move |datacenter, now| datacenter.retire(&key, how, now)).await
    }
}
