//! Waiting for a state, with a deadline and with the last observation when it is missed. Never a bare sleep.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::stretch::Patience;

/// The result of one poll: the awaited value, or a text about the current state.
pub trait Observation<T> {
    /// The value, or the text to print if the deadline passes.
    fn settle(self) -> Result<T, String>;
}

impl<T> Observation<T> for Option<T> {
    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display> Observation<T> for Result<T, E> {
    fn settle(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:#}"))
    }
}

/// Polls until `look` gives a value and returns it. Panics when `deadline` has passed, with `what` and the last observation:
/// return `Err(what was seen)` where `None` would be too little. The deadline is for an idle machine ([`Patience`]).
pub async fn wait_for<T, O, Fut>(what: &str, deadline: Duration, mut look: impl FnMut() -> Fut) -> T
where
    O: Observation<T>,
    Fut: Future<Output = O>,
{
    let mut patience = Patience::new(deadline);
    let mut seen = "nothing: no look has come to an end".to_owned();
    let pending = Pending::new(what);
    loop {
        // A poll that hangs must not outlive the deadline.
        match tokio::time::timeout(patience.look(), look()).await.map(Observation::settle) {
            Ok(Ok(value)) => return value,
            Ok(Err(now)) => {
                pending.seen(&now);
                seen = now;
            }
            Err(_) => {}
        }
        assert!(!patience.is_over(), "waited {patience} for: {what}\nlast seen: {seen}");
        tokio::time::sleep(patience.pause()).await;
    }
}

/// Awaits `work` and returns its result. Panics when `deadline`, which is for an idle machine, has passed.
pub async fn within<T>(what: &str, deadline: Duration, work: impl Future<Output = T>) -> T {
    let mut patience = Patience::new(deadline);
    let mut work = pin!(work);
    let _pending = Pending::new(what);
    loop {
        if let Ok(value) = tokio::time::timeout(patience.pause(), work.as_mut()).await {
            return value;
        }
        assert!(!patience.is_over(), "waited {patience} for: {what}");
    }
}

/// Unfinished waits: the awaited state and the last observation of each.
static PENDING: Mutex<BTreeMap<u64, (String, String)>> = Mutex::new(BTreeMap::new());

/// An entry in `PENDING`, until it is dropped.
struct Pending(u64);

impl Pending {
    fn new(what: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        PENDING.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (what.to_owned(), "nothing".to_owned()));
        Self(number)
    }

    fn seen(&self, now: &str) {
        if let Some((_, seen)) = PENDING.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&self.0) {
            now.clone_into(seen);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// The unfinished waits, each with its last observation.
pub fn pending() -> String {
    let pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let words: Vec<String> = pending.values().map(|(what, seen)| format!("{what}\nlast seen: {seen}")).collect();
    if words.is_empty() { "nothing that it says".to_owned() } else { words.join("\nand ") }
}

/// Prints to standard error what a story does now, with the time of day in UTC; the test runner shows it when the test fails.
pub fn step(what: impl Display) {
    eprintln!("{} {what}", jiff::Timestamp::now().strftime("%T.%3f"));
}
