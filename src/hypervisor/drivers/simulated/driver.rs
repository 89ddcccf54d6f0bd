//! The asynchronous interface of the simulator: each call runs one call of the data centre.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::datacenter::Datacenter;
use super::fault::Fate;
use crate::api::hypervisor::Simulated;
use crate::hypervisor::wire::{Effect, Wire};
use crate::hypervisor::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Wanted};
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
    /// The number of calls so far.
    calls: AtomicU64,
}

impl SimulatedDriver {
    /// `default_name` is the data centre's name unless the settings have one; `state` is the directory of all data centres. Nothing is
    /// written to disk before the first VM is created.
    pub fn new(state: &Path, default_name: &str, settings: Simulated, clock: Clock, wire: Wire) -> Result<Self, DriverError> {
        let datacenter = Arc::new(Datacenter::new(state, default_name, settings)?);
        Ok(Self { datacenter, clock, wire, calls: AtomicU64::new(0) })
    }

    async fn read<T, F>(&self, name: &'static str, work: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&Datacenter, Timestamp) -> Result<T, DriverError> + Send + 'static,
    {
        self.wire.read(name, self.call(Effect::Reads, work)).await
    }

    async fn change<T, F>(&self, name: &'static str, work: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&Datacenter, Timestamp) -> Result<T, DriverError> + Send + 'static,
    {
        self.wire.change(name, self.call(Effect::Changes, work)).await
    }

    /// Runs one call of the data centre on a thread that may block.
    async fn call<T, F>(&self, effect: Effect, work: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&Datacenter, Timestamp) -> Result<T, DriverError> + Send + 'static,
    {
        let (datacenter, now) = (self.datacenter.clone(), (self.clock)());
        datacenter.reachable()?;
        let fate = Fate::of(datacenter.failing_calls(), self.calls.fetch_add(1, Ordering::Relaxed), now);
        let failed = |what: &str| format!("{what}, because spec.simulated.failingCalls of the WindowsHypervisor says so; it is retried");
        if fate == Fate::NotCarriedOut {
            return Err(DriverError::Transient(failed("the call was not carried out")));
        }
        let done = tokio::task::spawn_blocking(move || work(&datacenter, now))
            .await
            .map_err(|error| DriverError::Unknown(format!("a call of the simulated hypervisor was interrupted: {error}; it is retried")))?;
        match fate {
            Fate::ReplyLost => Err(effect.unanswered(failed("the reply was lost"))),
            Fate::NeverAnswered => {
                tokio::time::sleep(CAPS.deadline).await;
                Err(effect.unanswered(failed("there was no answer")))
            }
            Fate::Answered | Fate::NotCarriedOut => done,
        }
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

    async fn detach(&self, key: &MachineKey, _journal: &Journal) -> Result<DriverStep, DriverError> {
        let key = key.clone();
        self.change("detach", move |datacenter, _| datacenter.detach(&key)).await
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, _journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let key = key.clone();
        self.change("retire", move |datacenter, now| datacenter.retire(&key, how, now)).await
    }
}
