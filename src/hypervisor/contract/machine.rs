//! A machine with assertions, and the recorded requests of its driver.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::endpoint::TestEndpoint;
use super::seed::seed;
use crate::api::name::VmUuid;
pub use crate::hypervisor::machine::Machine;
use crate::hypervisor::machine::pause;
use crate::hypervisor::wire::{Fate, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep};
use crate::vm::{MachineKey, Observed, Present, SeedKind, StopMode, VmSpec};

/// The names of a driver's requests, in the order of sending.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<&'static str>>>);

impl Requests {
    /// A driver whose requests are recorded.
    pub fn of(endpoint: &dyn TestEndpoint) -> (Arc<dyn Driver>, Self) {
        let requests = Self::default();
        (endpoint.wired(requests.hook()), requests)
    }

    /// The hook that records each request of a wire.
    pub fn hook(&self) -> WireHook {
        let noted = self.clone();
        Arc::new(move |request| {
            noted.0.lock().push(request.name);
            Fate::Pass
        })
    }

    /// Takes the requests since the last call.
    pub fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The most calls until an operation is done.
pub const MANY: usize = 200;

impl Machine {
    /// A machine that the endpoint can create.
    pub fn at(endpoint: &dyn TestEndpoint, name: &str) -> Self {
        let mut machine = Self::new(name, endpoint.spec());
        machine.seed = seed(endpoint.seed_kind());
        machine
    }

    pub fn new(name: &str, spec: VmSpec) -> Self {
        let key = MachineKey { vm: VmUuid::of(name), cluster: "lab/one".into(), name: name.into() };
        Self::of(key, spec, seed(SeedKind::Drive))
    }

    /// Replaces the journal, as if an earlier pass had stored it.
    pub fn store<'a>(&self, values: impl IntoIterator<Item = (&'a str, &'a str)>) {
        *self.lock() = values.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    }

    pub async fn see(&self, driver: &dyn Driver) -> Observed {
        self.look(driver).await.unwrap()
    }

    pub async fn present(&self, driver: &dyn Driver) -> Present {
        match self.see(driver).await {
            Observed::Present(present) => present,
            other => panic!("{:?} is {other:?}", self.key),
        }
    }

    /// Advances until done, at most `limit` times; returns whether it was done.
    pub async fn create(&self, driver: &dyn Driver, limit: usize) -> bool {
        for _ in 0..limit {
            match self.advance(driver).await {
                Ok(DriverStep::Done) => return true,
                other => go_on(other).await,
            }
        }
        false
    }

    pub async fn delete(&self, driver: &dyn Driver, how: StopMode, limit: usize) -> bool {
        for _ in 0..limit {
            match self.retire(driver, how).await {
                Ok(DriverStep::Done) => return true,
                other => go_on(other).await,
            }
        }
        false
    }
}

/// Waits between two passes as the controller does.
pub async fn go_on(step: Result<DriverStep, DriverError>) {
    match pause(step) {
        Ok(after) if after.is_zero() => {}
        Ok(after) => sleep(after).await,
        Err(error) => panic!("{error}"),
    }
}
