//! A guest with power: its VM's directory, the clock, and a share of the network.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

use crate::hypervisor::drivers::simulated::driver::Clock;
use crate::hypervisor::drivers::simulated::record::{Home, Record};

/// One guest, from power on until the power goes off.
pub struct Guest {
    pub(super) home: Home,
    pub(super) record: Record,
    pub(super) clock: Clock,
    pub(super) requests: Arc<Semaphore>,
}

impl Guest {
    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Waits for a free slot on the network.
    pub(super) async fn request(&self) -> Option<SemaphorePermit<'_>> {
        self.requests.acquire().await.ok()
    }

    /// Sleeps until that point in time.
    pub(super) async fn until(&self, at: Timestamp) {
        while let Ok(rest) = Duration::try_from(at.duration_since(self.now()))
            && !rest.is_zero()
        {
            sleep(rest.min(Duration::from_secs(60))).await;
        }
    }

    /// Runs file operations on a thread that may block.
    pub(super) async fn files<T: Send + 'static>(&self, work: impl FnOnce(&Home) -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let home = self.home.clone();
        tokio::task::spawn_blocking(move || work(&home)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}
