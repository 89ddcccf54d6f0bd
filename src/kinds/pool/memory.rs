//! This process's changes to pool machines that the caches do not show yet: without them, a pass that comes before the watch
//! would create or remove machines twice. Lost with the process: the caches of the next process start with the current objects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::machine::WindowsMachine;
use crate::guards::Guard;
use crate::kube_api::error::ApiError;

/// A watch that is behind for longer is down, and objects that it has not shown may be deleted by now.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(60);

/// After the API server has refused a machine, no machine is created for this long.
const REFUSED: SignedDuration = SignedDuration::from_secs(30);

/// The memory of each pool, by UID of the pool.
#[derive(Default)]
pub struct Memories(Mutex<HashMap<String, Memory>>);

#[derive(Default)]
struct Memory {
    /// Machines that were created, by UID.
    made: HashMap<String, (WindowsMachine, Timestamp)>,
    /// Machines whose configuration was created, by UID.
    configured: HashMap<String, Timestamp>,
    /// Names of machines whose create had no answer and that the cache has not shown: with the same name, the next try finds such a machine.
    unanswered: Vec<String>,
    /// UIDs of machines whose removal was requested.
    removed: HashMap<String, Timestamp>,
    /// The time of the last pass.
    looked: Option<Timestamp>,
    /// Why the API server refused a machine, and when.
    refused: Option<(String, Timestamp)>,
}

impl Memories {
    pub fn made(&self, pool: &str, object: WindowsMachine, now: Timestamp) {
        if let Some(uid) = object.uid().filter(|_| Guard::MadeMachines.holds()) {
            self.0.lock().entry(pool.to_owned()).or_default().made.insert(uid, (object, now));
        }
    }

    pub fn no_answer(&self, pool: &str, name: String) {
        self.0.lock().entry(pool.to_owned()).or_default().unanswered.push(name);
    }

    /// Takes a name to try again.
    pub fn take_unanswered(&self, pool: &str) -> Option<String> {
        self.0.lock().get_mut(pool)?.unanswered.pop().filter(|_| Guard::UnansweredNames.holds())
    }

    pub fn removed(&self, pool: &str, machine: &str, now: Timestamp) {
        self.0.lock().entry(pool.to_owned()).or_default().removed.insert(machine.to_owned(), now);
    }

    /// Created machines that `cached` does not show yet. A machine that it shows is forgotten, with its name: no other machine gets that name.
    pub fn unseen(&self, pool: &str, cached: &[Arc<WindowsMachine>], now: Timestamp) -> Vec<WindowsMachine> {
        let mut all = self.0.lock();
        let Some(memory) = all.get_mut(pool) else { return Vec::new() };
        keep_recent(&mut memory.removed, now);
        for machine in cached {
            memory.made.remove(&machine.uid().unwrap_or_default());
            memory.unanswered.retain(|name| *name != machine.name_any());
        }
        memory.made.values().map(|(object, _)| object.clone()).collect()
    }

    /// Created machines that the watch has not shown within the time limit: they must be read.
    pub fn overdue(&self, pool: &str, now: Timestamp) -> Vec<WindowsMachine> {
        let all = self.0.lock();
        let made = all.get(pool).into_iter().flat_map(|memory| memory.made.values());
        made.filter(|(_, at)| now.duration_since(*at) >= REMEMBERED).map(|(object, _)| object.clone()).collect()
    }

    pub fn configured(&self, pool: &str, machine: &str, now: Timestamp) {
        self.0.lock().entry(pool.to_owned()).or_default().configured.insert(machine.to_owned(), now);
    }

    /// Machines whose configuration was created and that `shown` does not contain. The configurations in `shown` are forgotten.
    pub fn unseen_configs(&self, pool: &str, shown: impl IntoIterator<Item = String>, now: Timestamp) -> HashSet<String> {
        let mut all = self.0.lock();
        let Some(memory) = all.get_mut(pool) else { return HashSet::new() };
        keep_recent(&mut memory.configured, now);
        for machine in shown {
            memory.configured.remove(&machine);
        }
        memory.configured.keys().cloned().collect()
    }

    pub fn is_removed(&self, pool: &str, machine: &str) -> bool {
        self.0.lock().get(pool).is_some_and(|m| m.removed.contains_key(machine))
    }

    /// Forgets a machine that the watch has shown, or that the API server does not have.
    pub fn seen(&self, machine: &str) {
        for memory in self.0.lock().values_mut() {
            memory.made.remove(machine);
        }
    }

    /// The rest of the pause since the last pass. `None` if the pause is over: then this pass counts as the last.
    pub fn rests(&self, pool: &str, rest: SignedDuration, now: Timestamp) -> Option<SignedDuration> {
        let mut all = self.0.lock();
        let memory = all.entry(pool.to_owned()).or_default();
        let left = memory.looked.and_then(|looked| left_of(rest, looked, now));
        if left.is_none() {
            memory.looked = Some(now);
        }
        left
    }

    /// Records the answer to a create if it is a refusal, without the name, which differs each time.
    pub fn remember_refusal<T>(&self, pool: &str, name: &str, answer: Result<T, ApiError>, now: Timestamp) -> Result<T, ApiError> {
        answer.inspect_err(|error| {
            if error.is_refusal() {
                self.refused(pool, error.to_string().replace(name, "…"), now);
            }
        })
    }

    fn refused(&self, pool: &str, why: String, now: Timestamp) {
        self.0.lock().entry(pool.to_owned()).or_default().refused = Some((why, now));
    }

    /// Why no machine is created, and how long that lasts; `None` if a create may be tried.
    pub fn refusal(&self, pool: &str, now: Timestamp) -> Option<(String, SignedDuration)> {
        let all = self.0.lock();
        let (why, at) = all.get(pool)?.refused.as_ref()?;
        Some((why.clone(), left_of(REFUSED, *at, now)?))
    }

    pub fn forget(&self, pool: &str) {
        self.0.lock().remove(pool);
    }
}

/// The rest of a period that began at `since`. If the clock was set back, the period ends: otherwise it would last longer by that difference.
fn left_of(whole: SignedDuration, since: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    let left = whole - now.duration_since(since);
    (left.is_positive() && left <= whole).then_some(left)
}

/// Forgets entries older than [`REMEMBERED`]. If the clock was set back, that period starts over.
fn keep_recent(at: &mut HashMap<String, Timestamp>, now: Timestamp) {
    at.values_mut().for_each(|at| *at = (*at).min(now));
    at.retain(|_, at| now.duration_since(*at) < REMEMBERED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_made_once_until_it_is_seen_or_a_minute_is_over() {
        let memories = Memories::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        memories.configured("pool", "a", at(0));
        memories.configured("pool", "b", at(0));
        assert_eq!(memories.unseen_configs("pool", ["a".to_owned()], at(59)), ["b".to_owned()].into());
        assert_eq!(memories.unseen_configs("pool", [], at(59)), ["b".to_owned()].into(), "what was seen may be made again when it goes");
        assert_eq!(memories.unseen_configs("pool", [], at(60)), [].into());
    }

    #[test]
    fn a_machine_that_was_made_is_remembered_until_it_is_seen_and_asked_for_after_a_minute() {
        let memories = Memories::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut machine = WindowsMachine::new("m", Default::default());
        machine.metadata.uid = Some("uid-m".into());
        memories.made("pool", machine, at(0));
        assert_eq!((memories.overdue("pool", at(59)).len(), memories.overdue("pool", at(60)).len()), (0, 1));
        assert_eq!(memories.unseen("pool", &[], at(600)).len(), 1);
        memories.seen("uid-m");
        assert_eq!((memories.overdue("pool", at(600)).len(), memories.unseen("pool", &[], at(600)).len()), (0, 0));
    }

    #[test]
    fn a_name_without_an_answer_is_tried_until_its_machine_is_seen() {
        let memories = Memories::default();
        memories.no_answer("pool", "seen".into());
        memories.no_answer("pool", "unseen".into());
        memories.unseen("pool", &[Arc::new(WindowsMachine::new("seen", Default::default()))], Timestamp::UNIX_EPOCH);
        assert_eq!([memories.take_unanswered("pool"), memories.take_unanswered("pool")], [Some("unseen".to_owned()), None]);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let memories = Memories::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let rest = SignedDuration::from_millis(300);
        assert_eq!(memories.rests("pool", rest, at(3600)), None);
        assert_eq!(memories.rests("pool", rest, at(3600)), Some(rest));
        assert_eq!(memories.rests("pool", rest, at(0)), None, "an hour back");
        memories.refused("pool", "no".into(), at(3600));
        assert_eq!(memories.refusal("pool", at(0)), None);
        memories.configured("pool", "a", at(3600));
        memories.removed("pool", "b", at(3600));
        memories.unseen("pool", &[], at(0));
        assert_eq!((memories.unseen_configs("pool", [], at(0)).len(), memories.is_removed("pool", "b")), (1, true));
        memories.unseen("pool", &[], at(60));
        assert_eq!((memories.unseen_configs("pool", [], at(60)).len(), memories.is_removed("pool", "b")), (0, false));
    }

    #[test]
    fn a_refusal_lasts_half_a_minute() {
        let memories = Memories::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(memories.refusal("a", at(0)), None);
        memories.refused("a", "no".into(), at(0));
        assert_eq!(memories.refusal("a", at(10)), Some(("no".into(), SignedDuration::from_secs(20))));
        assert_eq!((memories.refusal("a", at(30)), memories.refusal("b", at(10))), (None, None));
    }

    #[test]
    fn a_machine_that_was_removed_counts_as_removed_before_a_watch_shows_it() {
        let (memories, at) = (Memories::default(), |second| Timestamp::from_second(second).unwrap());
        memories.removed("pool", "one", at(0));
        assert!(memories.is_removed("pool", "one") && !memories.is_removed("pool", "two") && !memories.is_removed("other", "one"));
        memories.unseen("pool", &[], at(60));
        assert!(!memories.is_removed("pool", "one"), "a watch that shows it for a minute is right");
    }
}
