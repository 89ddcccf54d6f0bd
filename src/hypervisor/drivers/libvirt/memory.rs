//! The memory that a host has left for new VMs.

use std::time::Duration;

use tokio::time::Instant;

use super::link::Session;
use crate::hypervisor::DriverError;

/// How long the host's last report of its memory is trusted.
const RECENT: Duration = Duration::from_secs(10);

/// The free memory that the host reported last, less the memory given to VMs since: they fill their memory later.
#[derive(Default)]
pub struct Memory {
    read: Option<Instant>,
    /// The memory that is left; `None`: the host does not report it.
    left_mib: Option<u64>,
}

impl Memory {
    /// Whether a VM would get its memory; the inner error is how many MiB the host has left instead.
    pub async fn has(&mut self, session: &Session, mib: u64) -> Result<Result<(), u64>, DriverError> {
        let is_recent = self.read.is_some_and(|at| at.elapsed() < RECENT);
        // A VM is refused only by a fresh report of the host.
        if !is_recent || self.fits(mib).is_err() {
            self.left_mib = session.client.available_memory().await?.map(|kib| kib >> 10);
            self.read = Some(Instant::now());
        }
        Ok(self.fits(mib))
    }

    /// Reserves memory for a VM, if the host has enough.
    pub async fn give(&mut self, session: &Session, mib: u64) -> Result<Result<(), u64>, DriverError> {
        Ok(self.has(session, mib).await?.and_then(|()| self.subtract(mib)))
    }

    fn fits(&self, mib: u64) -> Result<(), u64> {
        self.left_mib.map_or(Ok(()), |left| if left < mib { Err(left) } else { Ok(()) })
    }

    fn subtract(&mut self, mib: u64) -> Result<(), u64> {
        if let Some(left) = self.left_mib {
            self.left_mib = Some(left.checked_sub(mib).ok_or(left)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vm_leaves_less_and_one_that_does_not_fit_nothing_less() {
        let mut memory = Memory { read: None, left_mib: Some(10) };
        assert_eq!((memory.subtract(6), memory.subtract(6), memory.subtract(4), memory.subtract(1)), (Ok(()), Err(4), Ok(()), Err(0)));
        assert_eq!((memory.fits(0), memory.fits(1)), (Ok(()), Err(0)));
        assert_eq!(Memory::default().subtract(1 << 40), Ok(()), "a host that does not say has room");
    }
}
