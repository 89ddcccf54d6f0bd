//! Remembers when guests got a shutdown request, so that a pass does not repeat the request while the guest shuts down.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::api::name::VmUuid;

/// The time after which a guest that still runs gets another shutdown request: a Windows that is booting ignores the request.
pub const ASK_AGAIN: Duration = Duration::from_secs(30);

/// The guests that got a shutdown request recently.
#[derive(Default)]
pub struct Shutdowns(Mutex<HashMap<VmUuid, Instant>>);

impl Shutdowns {
    /// Whether a guest got a shutdown request recently. A guest that misses the request gets another one later.
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
