//! When the pods on the Nodes of deleted machines were first observed terminating. The timestamp in a pod comes from another clock.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::api::name::VmUuid;
use crate::domain::node::drain::PodOnNode;

/// Terminating pods by UID, for each VM.
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
