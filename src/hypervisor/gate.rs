//! Limits the calls that an endpoint gets at the same time. A call that finds no place does not wait: its reconcile ends, so that the
//! reconciles of other endpoints go on, and is requeued for when a place is probably free. A place can be kept for a change that follows a read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::name::VmUuid;

/// The shortest and the longest time after which a refused call is retried.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_secs(30);
/// The assumed duration of a call before the first one has ended.
const UNKNOWN: Duration = Duration::from_millis(500);

pub struct Gate {
    limit: u32,
    /// The outer gate: a call needs a place in both gates.
    outer: Option<Arc<Gate>>,
    state: Mutex<State>,
}

struct State {
    /// The number of places in use, including kept places.
    inside: u32,
    kept: HashSet<VmUuid>,
    /// The mean duration of a call; recent calls count more.
    mean: Duration,
    /// When the last refused call is retried. The next refused call is retried after it: refused calls form a queue in time.
    last: Option<Instant>,
}

impl State {
    fn turn(&mut self, limit: u32) -> Option<Duration> {
        if self.inside < limit {
            return None;
        }
        let now = Instant::now();
        let turn = self.last.map_or(now, |last| last.max(now)) + self.mean / limit;
        self.last = Some(turn.min(now + LATEST));
        Some(turn.duration_since(now).clamp(SOONEST, LATEST))
    }
}

/// A place in a gate. Dropping the permit frees the place.
pub struct Permit<'a> {
    gate: &'a Gate,
    /// Held until this is dropped.
    _outer: Option<Box<Permit<'a>>>,
    /// When the call began; `None`: there was no call.
    since: Option<Instant>,
}

/// A place that is kept for the next call about a VM. Dropping the value before that call frees the place.
pub struct Kept {
    gate: Arc<Gate>,
    /// Held until this is dropped.
    _outer: Option<Box<Kept>>,
    vm: VmUuid,
}

impl Gate {
    pub fn new(limit: usize) -> Self {
        let state = Mutex::new(State { inside: 0, kept: HashSet::new(), mean: UNKNOWN, last: None });
        Self { limit: u32::try_from(limit).unwrap_or(u32::MAX).max(1), outer: None, state }
    }

    /// Creates a gate with a smaller limit for some of the callers of another gate.
    pub fn within(outer: Arc<Self>, limit: usize) -> Self {
        Self { outer: Some(outer), ..Self::new(limit) }
    }

    /// Returns a place, or the time after which the caller should retry.
    pub fn enter(&self) -> Result<Permit<'_>, Duration> {
        self.pass(None)
    }

    /// Enters like [`Gate::enter`], but takes the place that is kept for that VM, if one is.
    pub fn enter_for(&self, vm: VmUuid) -> Result<Permit<'_>, Duration> {
        self.pass(Some(vm))
    }

    fn pass(&self, vm: Option<VmUuid>) -> Result<Permit<'_>, Duration> {
        let mut outer = self.outer.as_ref().map(|outer| outer.pass(vm)).transpose()?.map(Box::new);
        let mut state = self.state.lock();
        if !vm.is_some_and(|vm| state.kept.remove(&vm)) {
            if let Some(after) = state.turn(self.limit) {
                if let Some(outer) = &mut outer {
                    outer.since = None;
                }
                return Err(after);
            }
            state.inside += 1;
        }
        Ok(Permit { gate: self, _outer: outer, since: Some(Instant::now()) })
    }

    /// Keeps a place, or returns the time after which the caller should retry. Each VM has at most one kept place.
    pub fn keep(self: &Arc<Self>, vm: VmUuid) -> Result<Kept, Duration> {
        let outer = self.outer.as_ref().map(|outer| outer.keep(vm)).transpose()?.map(Box::new);
        let mut state = self.state.lock();
        if let Some(after) = state.turn(self.limit) {
            return Err(after);
        }
        if !state.kept.insert(vm) {
            return Err(SOONEST);
        }
        state.inside += 1;
        Ok(Kept { gate: self.clone(), _outer: outer, vm })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.inside = state.inside.saturating_sub(1);
        if let Some(since) = self.since {
            state.mean = (state.mean * 3 + since.elapsed()) / 4;
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        if state.kept.remove(&self.vm) {
            state.inside = state.inside.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_for_one_call_of_one_vm() {
        let (gate, [one, two]) = (Arc::new(Gate::new(1)), ["one", "two"].map(VmUuid::of));
        let kept = gate.keep(one);
        assert!(kept.is_ok() && gate.keep(one).is_err() && gate.keep(two).is_err() && gate.enter_for(two).is_err());
        let permit = gate.enter_for(one);
        drop(kept);
        assert!(permit.is_ok() && gate.enter_for(one).is_err(), "it is taken");
        drop(permit);
        drop(gate.keep(one));
        assert!(gate.enter_for(two).is_ok(), "it was not needed");
    }

    #[test]
    fn a_gate_within_another_takes_places_of_both_and_gives_both_back() {
        let (outer, [one, two, three]) = (Arc::new(Gate::new(2)), ["one", "two", "three"].map(VmUuid::of));
        let [narrow, other] = [1, 9].map(|limit| Arc::new(Gate::within(outer.clone(), limit)));
        let kept = narrow.keep(one);
        assert!(kept.is_ok() && narrow.enter_for(two).is_err(), "its own limit");
        let beside = other.enter_for(two);
        assert!(beside.is_ok() && other.enter_for(three).is_err(), "the limit of both: what was refused above holds no place");
        let permit = narrow.enter_for(one);
        assert!(permit.is_ok(), "the places that were kept");
        drop((kept, permit, beside));
        assert_eq!([&outer, &narrow, &other].map(|gate| gate.state.lock().inside), [0; 3]);
        assert_eq!(outer.state.lock().kept.len() + narrow.state.lock().kept.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_calls_come_back_one_after_the_other_at_the_pace_of_the_endpoint() {
        let gate = Gate::new(2);
        for _ in 0..20 {
            let permit = gate.enter();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(permit);
        }
        let inside = (gate.enter(), gate.enter());
        assert!(inside.0.is_ok() && inside.1.is_ok());
        let waits: Vec<u128> = (0..4).map(|_| gate.enter().err().unwrap().as_millis().div_ceil(100)).collect();
        assert_eq!(waits, [5, 10, 15, 20], "two at a time, each takes a second");
        drop(inside);
        assert!(gate.enter().is_ok());
        let waits: Vec<Duration> = (0..200).filter_map(|_| std::mem::ManuallyDrop::new(gate.enter()).as_ref().err().copied()).collect();
        assert!(waits.iter().all(|wait| *wait <= LATEST) && waits.last() == Some(&LATEST), "never later than that");
    }
}
