//! A machine as the controller keeps it: its identity, its spec, and the journal in its status, which is written with compare and swap.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::sleep;

use super::TestEndpoint;
use crate::api::name::VmUuid;
use crate::hypervisor::wire::{Fate, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep};
use crate::vm::{Journal, MachineKey, Observed, Present, Seed, SeedKind, StopMode, VmSpec};

/// The requests of a driver, by name, as they leave.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<&'static str>>>);

impl Requests {
    /// A driver whose requests are noted.
    pub fn of(endpoint: &dyn TestEndpoint) -> (Arc<dyn Driver>, Self) {
        let requests = Self::default();
        (endpoint.wired(requests.hook()), requests)
    }

    /// What notes each request of a wire.
    pub fn hook(&self) -> WireHook {
        let noted = self.clone();
        Arc::new(move |request| {
            noted.0.lock().unwrap().push(request.name);
            Fate::Pass
        })
    }

    /// Those since the last time.
    pub fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Most calls until something is done.
pub const MANY: usize = 200;

pub struct Machine {
    pub key: MachineKey,
    pub spec: VmSpec,
    pub seed: Seed,
    journal: Mutex<Journal>,
}

impl Machine {
    /// A machine as that endpoint can make it.
    pub fn at(endpoint: &dyn TestEndpoint, name: &str) -> Self {
        Self { seed: super::seed::seed(endpoint.seed_kind()), ..Self::new(name, endpoint.spec()) }
    }

    pub fn new(name: &str, spec: VmSpec) -> Self {
        let key = MachineKey { vm: VmUuid::of(name), cluster: "lab/one".into(), name: name.into() };
        Self { key, spec, seed: super::seed::seed(SeedKind::Drive), journal: Mutex::default() }
    }

    /// As if an earlier pass had stored it.
    pub fn store<'a>(&self, values: impl IntoIterator<Item = (&'a str, &'a str)>) {
        *self.lock() = values.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    }

    /// As after a move to another cluster, which loses status.
    pub fn lose_journal(&self) {
        self.lock().clear();
    }

    pub async fn see(&self, driver: &dyn Driver) -> Observed {
        driver.observe(&self.key, &self.journal()).await.unwrap()
    }

    pub async fn present(&self, driver: &dyn Driver) -> Present {
        match self.see(driver).await {
            Observed::Present(present) => present,
            other => panic!("{:?} is {other:?}", self.key),
        }
    }

    /// One pass towards a running VM.
    pub async fn advance(&self, driver: &dyn Driver) -> Result<DriverStep, DriverError> {
        let journal = self.journal();
        let observed = driver.observe(&self.key, &journal).await?;
        if observed == Observed::Absent {
            driver.check(&self.spec, self.seed.kind()).await?;
            let planned = driver.plan(&self.key, &self.spec, &journal).await?;
            if planned != journal {
                return self.stored(&journal, DriverStep::Started { journal: planned });
            }
        }
        let step = driver.advance(&self.key, &self.spec, &self.seed, &journal, &observed).await?;
        self.stored(&journal, step)
    }

    /// One pass towards nothing.
    pub async fn retire(&self, driver: &dyn Driver, how: StopMode) -> Result<DriverStep, DriverError> {
        let journal = self.journal();
        let observed = driver.observe(&self.key, &journal).await?;
        let step = driver.retire(&self.key, how, &journal, &observed).await?;
        self.stored(&journal, step)
    }

    pub async fn detach(&self, driver: &dyn Driver) -> Result<DriverStep, DriverError> {
        let journal = self.journal();
        let observed = driver.observe(&self.key, &journal).await?;
        let step = driver.detach(&self.key, &journal, &observed).await?;
        self.stored(&journal, step)
    }

    /// Advances until done, at most `limit` times; true if it was done.
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

    pub fn journal(&self) -> Journal {
        self.lock().clone()
    }

    /// What the API server does with a status: it is stored if no other write came since it was read.
    fn stored(&self, read: &Journal, step: DriverStep) -> Result<DriverStep, DriverError> {
        if let DriverStep::Started { journal } | DriverStep::Failed { journal, .. } = &step {
            let mut stored = self.lock();
            if *stored == *read {
                stored.clone_from(journal);
            }
        }
        match step {
            DriverStep::Failed { error, .. } => Err(error),
            step => Ok(step),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap()
    }
}

/// What the controller does between two passes. Two that meet may get in each other's way once.
pub async fn go_on(step: Result<DriverStep, DriverError>) {
    match step {
        Ok(DriverStep::Wait { after }) | Err(DriverError::Busy { after }) => sleep(after).await,
        Ok(_) | Err(DriverError::Unknown(_) | DriverError::Transient(_)) => {}
        Err(error) => panic!("{error}"),
    }
}
