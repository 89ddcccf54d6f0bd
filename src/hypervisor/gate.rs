//! How many calls an endpoint gets at the same time. A call that finds no place does not wait: its pass ends, so that passes of other
//! endpoints go on, and comes back when there is probably room. A place can be kept for a call that follows a look.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::name::VmUuid;

/// Limits of the time after which a refused call comes back.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_secs(30);
/// What a call is taken to last before one has ended.
const UNKNOWN: Duration = Duration::from_millis(500);

pub struct Gate {
    limit: u32,
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
    since: Instant,
}

/// A place that is kept for the next call about a VM; free again when this is dropped before that call.
pub struct Kept {
    gate: Arc<Gate>,
    vm: VmUuid,
}

impl Gate {
    pub fn new(limit: usize) -> Self {
        let state = Mutex::new(State { inside: 0, kept: HashSet::new(), mean: UNKNOWN, last: None });
        Self { limit: u32::try_from(limit).unwrap_or(u32::MAX).max(1), state }
    }

    /// A place, or after which time to try again.
    pub fn enter(&self) -> Result<Permit<'_>, Duration> {
        let mut state = self.lock();
        if let Some(after) = state.turn(self.limit) {
            return Err(after);
        }
        state.inside += 1;
        Ok(Permit { gate: self, since: Instant::now() })
    }

    /// As [`Gate::enter`]; the place that is kept for that VM is taken, if there is one.
    pub fn enter_for(&self, vm: VmUuid) -> Result<Permit<'_>, Duration> {
        if self.lock().kept.remove(&vm) {
            return Ok(Permit { gate: self, since: Instant::now() });
        }
        self.enter()
    }

    /// Keeps a place, or says after which time to try again. One is kept for each VM.
    pub fn keep(self: &Arc<Self>, vm: VmUuid) -> Result<Kept, Duration> {
        let mut state = self.lock();
        if let Some(after) = state.turn(self.limit) {
            return Err(after);
        }
        if !state.kept.insert(vm) {
            return Err(SOONEST);
        }
        state.inside += 1;
        Ok(Kept { gate: self.clone(), vm })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        let mut state = self.gate.lock();
        state.inside = state.inside.saturating_sub(1);
        state.mean = (state.mean * 3 + took) / 4;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
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
