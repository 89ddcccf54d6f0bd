//! How many calls an endpoint gets at the same time. A call that finds no place does not wait: its pass ends, so that passes of other
//! endpoints go on, and comes back when there is probably room.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Limits of the time after which a refused call comes back.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_secs(30);

pub struct Gate {
    limit: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    inside: u32,
    /// Mean time of a call; recent ones count more.
    mean: Duration,
    /// When the last refused call comes back. The next one comes after it: refused calls form a queue in time.
    last: Option<Instant>,
}

/// A place; it is free again when this is dropped.
pub struct Permit<'a> {
    gate: &'a Gate,
    since: Instant,
}

impl Gate {
    pub fn new(limit: usize) -> Self {
        Self { limit: u32::try_from(limit).unwrap_or(u32::MAX).max(1), state: Mutex::default() }
    }

    /// A place, or after which time to try again.
    pub fn enter(&self) -> Result<Permit<'_>, Duration> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.inside < self.limit {
            state.inside += 1;
            return Ok(Permit { gate: self, since: now });
        }
        let turn = state.last.map_or(now, |last| last.max(now)) + state.mean / self.limit;
        let after = turn.duration_since(now).clamp(SOONEST, LATEST);
        state.last = Some(turn.min(now + LATEST));
        Err(after)
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

#[cfg(test)]
mod tests {
    use super::*;

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
