//! Limits for the memory of this process that several users share, in bytes.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The error when a budget is used up.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{whose} would take more than {} MiB of memory", .most >> 20)]
pub struct Crowded {
    whose: &'static str,
    most: usize,
}

/// A budget in bytes. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<Semaphore>,
    most: usize,
    whose: &'static str,
}

impl Budget {
    /// Creates a budget. `whose` begins the text of [`Crowded`].
    pub fn new(most: usize, whose: &'static str) -> Self {
        Self { left: Arc::new(Semaphore::new(most)), most, whose }
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes the whole cost at once or nothing: users that wait for each other would keep their parts. Dropping the permit returns it.
    pub fn take(&self, cost: usize) -> Result<OwnedSemaphorePermit, Crowded> {
        let permits = u32::try_from(cost).unwrap_or(u32::MAX);
        self.left.clone().try_acquire_many_owned(permits).map_err(|_| Crowded { whose: self.whose, most: self.most })
    }

    /// Returns a separate budget that is `by` times smaller.
    #[cfg(test)]
    pub fn divided(&self, by: usize) -> Self {
        Self::new(self.most / by, self.whose)
    }

    #[cfg(test)]
    pub fn is_untouched(&self) -> bool {
        self.left.available_permits() == self.most
    }
}
