//! What things may take of the memory of this process together, in bytes.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// There is no room for one more.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{whose} would take more than {} MiB of memory", .most >> 20)]
pub struct Crowded {
    whose: &'static str,
    most: usize,
}

/// Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<Semaphore>,
    most: usize,
    whose: &'static str,
}

impl Budget {
    /// `whose` begins the text of [`Crowded`].
    pub fn new(most: usize, whose: &'static str) -> Self {
        Self { left: Arc::new(Semaphore::new(most)), most, whose }
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// At once or not at all: things that wait for each other would keep what they have. Dropped, it is given back.
    pub fn take(&self, cost: usize) -> Result<OwnedSemaphorePermit, Crowded> {
        let permits = u32::try_from(cost).unwrap_or(u32::MAX);
        self.left.clone().try_acquire_many_owned(permits).map_err(|_| Crowded { whose: self.whose, most: self.most })
    }

    /// One that is so many times smaller.
    #[cfg(test)]
    pub fn divided(&self, by: usize) -> Self {
        Self::new(self.most / by, self.whose)
    }

    #[cfg(test)]
    pub fn is_untouched(&self) -> bool {
        self.left.available_permits() == self.most
    }
}
