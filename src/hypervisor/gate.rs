//! How many calls an endpoint gets at the same time. A call that finds no place does not wait: its pass ends, so that passes of other
//! endpoints go on, and comes back when there is probably room. A place can be kept for a call that follows a look.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::name::VmUuid;

/// Limits of the time after which a refused call comes back.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_secs(30);
/// What a call is taken to last before one has ended.
const UNKNOWN: Duration = Duration::from_millis(500);

pub struct Gate {
    limit: u32,
    /// A gate whose places count too: a call has one of each.
    outer: Option<Arc<Gate>>,
    state: Mutex<State>,
}

struct State {
    /// With those for which a place is kept.
    inside: u32,
    kept: HashSet<VmUuid>,
    /// Mean time of a call; recent ones count more.
    mean: Duration,
    /// When the last refused call comes back. The next one comes after it: refused calls form a queue in time.
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

/// A place; it is free again when this is dropped.
pub struct Permit<'a> {
    gate: &'a Gate,
    /// Held for its drop.
    _outer: Option<Box<Permit<'a>>>,
    /// `None`: no call was made.
    since: Option<Instant>,
}

/// A place that is kept for the next call about a VM; free again when this is dropped before that call.
pub struct Kept {
    gate: Arc<Gate>,
    /// Held for its drop.
    _outer: Option<Box<Kept>>,
    vm: VmUuid,
}

impl Gate {
    pub fn new(limit: usize) -> Self {
        let state = Mutex::new(State { inside: 0, kept: HashSet::new(), mean: UNKNOWN, last: None });
        Self { limit: u32::try_from(limit).unwrap_or(u32::MAX).max(1), outer: None, state }
    }

    /// A smaller limit for some of those who pass another gate.
    pub fn within(outer: Arc<Self>, limit: usize) -> Self {
        Self { outer: Some(outer), ..Self::new(limit) }
    }

    /// A place, or after which time to try again.
    pub fn enter(&self) -> Result<Permit<'_>, Duration> {
        self.pass(None)
    }

    /// As [`Gate::enter`]; the place that is kept for that VM is taken, if there is one.
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

    /// Keeps a place, or says after which time to try again. One is kept for each VM.
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
