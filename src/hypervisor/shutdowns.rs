//! When guests were asked to shut down: a look at one that is about to does not ask it again.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::api::name::VmUuid;

/// Until a guest that runs on is asked again: a Windows that starts does not listen yet.
pub const ASK_AGAIN: Duration = Duration::from_secs(30);

/// The guests that were asked not long ago.
#[derive(Default)]
pub struct Shutdowns(Mutex<HashMap<VmUuid, Instant>>);

impl Shutdowns {
    /// Whether a guest was asked not long ago. One that misses it is asked again.
    pub fn has(&self, vm: VmUuid) -> bool {
        self.all().get(&vm).is_some_and(|since| since.elapsed() < ASK_AGAIN)
    }

    pub fn note(&self, vm: VmUuid) {
        let mut all = self.all();
        all.retain(|_, since| since.elapsed() < ASK_AGAIN);
        all.insert(vm, Instant::now());
    }

    fn all(&self) -> MutexGuard<'_, HashMap<VmUuid, Instant>> {
        self.0.lock()
    }
}
