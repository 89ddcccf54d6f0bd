//! Full clones. A copy of an image takes longer than a call may: the daemon copies, and later calls poll the progress.
//!
//! A copy is the first volume of a VM and is created while the VM has no other, so a second volume proves that the copy is complete. A
//! copy without a second volume may be torn, and there is no other sign: if this process did not create the copy, it is recreated.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::LibvirtDriver;
use super::client::Volume;
use super::link::Session;
use super::refusal::{Error, code, unless};
use super::volumes::{self, Image, Volumes};
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::vm::MachineKey;

/// The time between two polls of a copy.
pub const POLL: Duration = Duration::from_secs(2);
/// The most concurrent copies: the daemon serves few requests of one client at once, and the disks of its VMs have other work.
const MOST: usize = 2;
/// The time without progress after which a copy of another process counts as abandoned: that process has ended.
const ABANDONED: Duration = Duration::from_secs(30);

type Copied = Result<(), Error>;

/// The copies that this process has begun, and the copies that it has found.
#[derive(Default)]
pub struct Copies {
    begun: Mutex<HashMap<VmUuid, AbortOnDropHandle<Copied>>>,
    found: Mutex<HashMap<VmUuid, Instant>>,
}

enum Progress {
    /// This process has not begun a copy.
    None,
    Underway,
    Ended(Copied),
}

impl Copies {
    fn progress(&self, vm: VmUuid) -> Progress {
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
    fn begin(&self, vm: VmUuid, work: impl Future<Output = Copied> + Send + 'static) {
        self.found().remove(&vm);
        let mut begun = self.begun.lock();
        if begun.values().filter(|copy| !copy.is_finished()).count() < MOST {
            begun.insert(vm, AbortOnDropHandle::new(tokio::spawn(work)));
        }
    }

    fn is_abandoned(&self, vm: VmUuid) -> bool {
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

impl LibvirtDriver {
    /// Continues the copy that becomes the system disk of a VM without a domain. False: the copy is not ready yet.
    pub(super) async fn copy(&self, session: &Arc<Session>, key: &MachineKey, image: &Image, gib: Option<u64>) -> Result<bool, DriverError> {
        match self.copies.progress(key.vm) {
            Progress::Underway => return Ok(false),
            Progress::Ended(Ok(())) => return Ok(true),
            // Another process has created the copy first.
            Progress::Ended(Err(Error::Refused { code: code::STORAGE_VOL_EXIST, .. })) | Progress::None => {}
            Progress::Ended(Err(error)) => return Err(error.into()),
        }
        let name = Volumes::of(key).system();
        let there = self.volumes_of(session, key).await?;
        if let Some(copy) = there.iter().find(|volume| volume.name == name) {
            if there.len() > 1 {
                self.copies.forget(key.vm);
                return Ok(true);
            }
            if session.client.is_being_made(&session.pool, copy).await? {
                self.copies.forget(key.vm);
                return Ok(false);
            }
            if !self.copies.is_abandoned(key.vm) {
                return Ok(false);
            }
        }
        if !there.is_empty() {
            self.refuse_other(session, key).await?;
            if !self.delete_volumes(session, &there).await? {
                return Ok(false);
            }
        }
        let (session, image, bytes) = (session.clone(), image.clone(), gib.map(|gib| gib << 30));
        self.copies.begin(key.vm, async move { make(&session, &name, &image, bytes).await });
        Ok(false)
    }
}

async fn make(session: &Session, name: &str, image: &Image, bytes: Option<u64>) -> Copied {
    let (client, pool) = (&session.client, &session.pool);
    let original = Volume { name: image.name.clone(), key: image.path.clone() };
    let copy = client.copy_volume(pool, &volumes::copy(name, image), &original).await?;
    match bytes.filter(|bytes| *bytes > image.bytes) {
        // A copy always has the size of its original, whatever its definition says.
        Some(bytes) => match client.resize_volume(pool, &copy, bytes).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // The copy is deleted because a later call would treat it as complete, with the size of the image.
                unless(client.delete_volume(pool, &copy).await, code::NO_STORAGE_VOL)?;
                Err(error)
            }
        },
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
