//! A machine as the caller of a driver keeps it: its identity, its spec, its seed, and the journal, which is written with compare and swap.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::driver::{Driver, DriverStep};
use crate::vm::{DriverError, Journal, MachineKey, Observed, Seed, StopMode, VmSpec};

/// A machine whose journal is in memory.
pub struct Machine {
    pub key: MachineKey,
    pub spec: VmSpec,
    pub seed: Seed,
    journal: Mutex<Journal>,
}

impl Machine {
    pub fn of(key: MachineKey, spec: VmSpec, seed: Seed) -> Self {
        Self { key, spec, seed, journal: Mutex::default() }
    }

    /// Clears the journal, like a move to another cluster, which loses the status.
    pub fn lose_journal(&self) {
        self.lock().clear();
    }

    /// Observes the machine at the endpoint.
    pub async fn look(&self, driver: &dyn Driver) -> Result<Observed, DriverError> {
        driver.observe(&self.key, &self.journal()).await
    }

    /// Runs one pass towards a running VM.
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

    /// Runs one pass towards the removal of the VM.
    pub async fn retire(&self, driver: &dyn Driver, how: StopMode) -> Result<DriverStep, DriverError> {
        let journal = self.journal();
        let observed = driver.observe(&self.key, &journal).await?;
        let step = driver.retire(&self.key, how, &journal, &observed).await?;
        self.stored(&journal, step)
    }

    /// Runs one pass towards a VM without its seed.
    pub async fn detach(&self, driver: &dyn Driver) -> Result<DriverStep, DriverError> {
        let journal = self.journal();
        // Every pass observes first.
        driver.observe(&self.key, &journal).await?;
        let step = driver.detach(&self.key, &journal).await?;
        self.stored(&journal, step)
    }

    pub fn journal(&self) -> Journal {
        self.lock().clone()
    }

    /// Stores the journal of a step like the API server stores a status: only if nothing else wrote to it since it was read.
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock()
    }
}

/// Returns the time until the next pass, or the error that no other pass fixes. Two concurrent passes may fail each other once.
pub fn pause(step: Result<DriverStep, DriverError>) -> Result<Duration, DriverError> {
    match step {
        Ok(DriverStep::Wait { after }) | Err(DriverError::Busy { after }) => Ok(after),
        Ok(_) | Err(DriverError::Unknown(_) | DriverError::Transient(_)) => Ok(Duration::ZERO),
        Err(error) => Err(error),
    }
}
