//! The memory of this process about machines. It is lost with the process, and rebuilt.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::decide::streak::Streak;
use crate::api::name::VmUuid;
use crate::domain::node::drain::PodOnNode;
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

/// When the pods on the Nodes of deleted machines were first observed terminating: by UID, for each VM. The timestamp in a pod comes from another clock.
#[derive(Default)]
pub struct Endings(Mutex<HashMap<VmUuid, HashMap<String, Timestamp>>>);

impl Endings {
    /// Records the current pods on a Node. Returns when each of them was first observed terminating.
    pub fn note(&self, vm: VmUuid, pods: &[PodOnNode], now: Timestamp) -> HashMap<String, Timestamp> {
        let ending = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).filter_map(|pod| pod.metadata.uid.clone());
        let mut all = self.0.lock();
        let before = all.remove(&vm).unwrap_or_default();
        let since = |uid: String| {
            let since = before.get(&uid).copied().unwrap_or(now);
            (uid, since)
        };
        let seen: HashMap<String, Timestamp> = ending.map(since).collect();
        if !seen.is_empty() {
            all.insert(vm, seen.clone());
        }
        seen
    }

    pub fn forget(&self, vm: VmUuid) {
        self.0.lock().remove(&vm);
    }
}

/// When the deletion of each machine was first observed, by UID of the machine. The deletion timestamp comes from another clock.
#[derive(Default)]
pub struct Deletions(Mutex<HashMap<String, Timestamp>>);

impl Deletions {
    /// Records the deletion of a machine. Returns when it was first observed.
    pub fn note(&self, machine: &str, now: Timestamp) -> Timestamp {
        *self.0.lock().entry(machine.to_owned()).or_insert(now)
    }

    pub fn forget(&self, machine: &str) {
        self.0.lock().remove(machine);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_ends_since_it_was_first_seen_to_whatever_its_own_clock_says() {
        let pod = |uid: &str, deleted: Option<&str>| -> PodOnNode {
            serde_json::from_value(json!({"metadata": {"uid": uid, "deletionTimestamp": deleted}})).unwrap()
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let (endings, vm) = (Endings::default(), VmUuid::of("w"));
        assert!(endings.note(vm, &[pod("a", None)], at(1)).is_empty());
        let long_ago = Some("1970-01-01T00:00:00Z");
        assert_eq!(endings.note(vm, &[pod("a", long_ago)], at(1_000)), [("a".to_owned(), at(1_000))].into());
        let both = [("a".to_owned(), at(1_000)), ("b".to_owned(), at(1_060))];
        assert_eq!(endings.note(vm, &[pod("a", long_ago), pod("b", long_ago)], at(1_060)), both.into());
        endings.note(vm, &[], at(1_070));
        assert!(endings.0.lock().is_empty(), "what is gone is forgotten");
    }
}
