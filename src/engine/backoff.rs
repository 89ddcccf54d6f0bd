//! The delay before a pass that failed is retried.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::outcome::ReconcileError;
use crate::kube_api::error::Retry;

/// The retry interval after an error that only a change can fix. The object is still checked, because the change may be in something that is not
/// watched.
pub(super) const ON_CHANGE: Duration = Duration::from_secs(300);

/// The delay after the `failures`-th failure in a row (1 is the first), with a jitter of ±20 % that depends on the object.
pub(super) fn delay(error: &ReconcileError, failures: u32, object: &str) -> Duration {
    let (first, most) = match error.retry() {
        Retry::Soon => (Duration::from_millis(20), Duration::from_secs(5)),
        Retry::Backoff => (Duration::from_millis(500), Duration::from_secs(30)),
        Retry::OnChange => (ON_CHANGE, ON_CHANGE),
    };
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
    let mut hasher = DefaultHasher::new();
    (object, failures).hash(&mut hasher);
    let percent = 80 + u32::try_from(hasher.finish() % 41).unwrap_or(20);
    (doubled * percent / 100).max(error.not_before())
}
