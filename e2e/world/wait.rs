//! Waiting for a state, with a deadline and with what was seen last when it is missed. Never a bare sleep.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use super::patience::Patience;

/// What one look gave: the value that was waited for, or a word on what was there instead.
pub trait Observation<T> {
    /// The value, or what to print if the deadline comes.
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

/// Looks until `look` gives a value and returns it. Panics when `deadline` has passed, with `what` and what was seen last:
/// let `look` return `Err(what it saw)` where `None` would say too little. The deadline is one of an idle machine ([`Patience`]).
pub async fn wait_for<T, O, Fut>(what: &str, deadline: Duration, mut look: impl FnMut() -> Fut) -> T
where
    O: Observation<T>,
    Fut: Future<Output = O>,
{
    let mut patience = Patience::new(deadline);
    let mut seen = "nothing: no look has come to an end".to_owned();
    loop {
        // A look that hangs must not outlive the deadline.
        match tokio::time::timeout(patience.look(), look()).await.map(Observation::settle) {
            Ok(Ok(value)) => return value,
            Ok(Err(now)) => seen = now,
            Err(_) => {}
        }
        assert!(!patience.is_over(), "waited {patience} for: {what}\nlast seen: {seen}");
        tokio::time::sleep(patience.pause()).await;
    }
}

/// Says on standard error what a story does now, with the time of day in UTC; the test runner shows it when the test fails.
pub fn step(what: impl Display) {
    eprintln!("{} {what}", jiff::Timestamp::now().strftime("%T.%3f"));
}
