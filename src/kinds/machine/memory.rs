//! The memory of this process about machines. It is lost with the process, and rebuilt.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::decide::streak::Streak;
use crate::api::name::VmUuid;
use crate::vm::Seed;

/// The seeds of machines whose VM is being created, by VM.
#[derive(Default)]
pub struct Seeds {
    by_vm: Mutex<HashMap<VmUuid, Arc<Seed>>>,
}

impl Seeds {
    pub fn forget(&self, vm: VmUuid) {
        self.by_vm.lock().remove(&vm);
    }

    pub fn get(&self, vm: VmUuid) -> Option<Arc<Seed>> {
        self.by_vm.lock().get(&vm).cloned()
    }

    pub fn keep(&self, vm: VmUuid, seed: Arc<Seed>) {
        self.by_vm.lock().insert(vm, seed);
    }
}

/// The machines whose last calls have failed, by VM.
#[derive(Default)]
pub struct Failures(Mutex<HashMap<VmUuid, Streak>>);

impl Failures {
    pub fn failed(&self, vm: VmUuid, words: &str, now: Timestamp) -> Option<String> {
        let mut all = self.0.lock();
        all.retain(|_, streak| !streak.is_over(now));
        all.entry(vm).or_insert_with(|| Streak::new(now)).failed(words, now).map(str::to_owned)
    }

    pub fn told(&self, vm: VmUuid) -> Option<String> {
        self.0.lock().get(&vm)?.told().map(str::to_owned)
    }

    /// Ends the streak: a call has succeeded, or failed in a way that is reported at once.
    pub fn ended(&self, vm: VmUuid) {
        self.0.lock().remove(&vm);
    }
}
