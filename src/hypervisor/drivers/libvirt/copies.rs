//! The copies of images that this process has begun or found.

use std::collections::HashMap;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::refusal::Error;
use crate::api::name::VmUuid;

/// The time between two polls of a copy.
pub const POLL: Duration = Duration::from_secs(2);
/// The most concurrent copies: the daemon serves few requests of one client at once, and the disks of its VMs have other work.
const MOST: usize = 2;
/// The time without progress after which a copy of another process counts as abandoned: that process has ended.
const ABANDONED: Duration = Duration::from_secs(30);

pub type Copied = Result<(), Error>;

/// The copies that this process has begun, and the copies that it has found.
#[derive(Default)]
pub struct Copies {
    begun: Mutex<HashMap<VmUuid, AbortOnDropHandle<Copied>>>,
    found: Mutex<HashMap<VmUuid, Instant>>,
}

/// How far the copy of a VM is.
pub enum Progress {
    /// This process has not begun a copy.
    None,
    Underway,
    Ended(Copied),
}

impl Copies {
    pub fn progress(&self, vm: VmUuid) -> Progress {
        let mut begun = self.begun.lock();
        match begun.get(&vm) {
            None => return Progress::None,
            Some(copy) if !copy.is_finished() => return Progress::Underway,
            Some(_) => {}
        }
        // Any other end of the task is a panic: the copy counts as not begun.
        begun.remove(&vm).and_then(FutureExt::now_or_never).and_then(Result::ok).map_or(Progress::None, Progress::Ended)
    }

    /// Begins a copy unless too many are under way.
    pub fn begin(&self, vm: VmUuid, work: impl Future<Output = Copied> + Send + 'static) {
        self.found().remove(&vm);
        let mut begun = self.begun.lock();
        if begun.values().filter(|copy| !copy.is_finished()).count() < MOST {
            begun.insert(vm, AbortOnDropHandle::new(tokio::spawn(work)));
        }
    }

    pub fn is_abandoned(&self, vm: VmUuid) -> bool {
        self.found().entry(vm).or_insert_with(Instant::now).elapsed() >= ABANDONED
    }

    /// Stops waiting for a copy; the daemon continues it.
    pub fn forget(&self, vm: VmUuid) {
        self.begun.lock().remove(&vm);
        self.found().remove(&vm);
    }

    fn found(&self) -> MutexGuard<'_, HashMap<VmUuid, Instant>> {
        self.found.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::DriverError;

    #[tokio::test]
    async fn two_copies_at_a_time_and_each_ends_once() {
        let copies = Copies::default();
        let [a, b, c] = ["a", "b", "c"].map(VmUuid::of);
        let (done, wait) = tokio::sync::oneshot::channel::<()>();
        copies.begin(a, async { wait.await.map_err(|_| DriverError::Transient("x".into()).into()) });
        copies.begin(b, std::future::pending());
        copies.begin(c, std::future::ready(Ok(())));
        assert!(matches!(copies.progress(a), Progress::Underway) && matches!(copies.progress(c), Progress::None), "a third one waits");
        done.send(()).unwrap();
        while matches!(copies.progress(c), Progress::None) {
            tokio::task::yield_now().await;
            copies.begin(c, std::future::ready(Ok(())));
        }
        assert!(matches!(copies.progress(a), Progress::Ended(Ok(()))) && matches!(copies.progress(a), Progress::None), "it is told once");
        copies.forget(b);
        assert!(matches!(copies.progress(b), Progress::None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_process_has_begun_is_waited_for_before_it_is_recreated() {
        let (copies, vm) = (Copies::default(), VmUuid::of("a"));
        assert!(!copies.is_abandoned(vm));
        tokio::time::advance(ABANDONED - Duration::from_secs(1)).await;
        assert!(!copies.is_abandoned(vm));
        copies.forget(vm);
        assert!(!copies.is_abandoned(vm), "it moved, so it counts again");
        tokio::time::advance(ABANDONED).await;
        assert!(copies.is_abandoned(vm));
    }
}
