//! OBSERVED → DECISION (pure): the next step, the report, and the requeue. No client, no clock, no randomness.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::age::created;
use crate::api::condition::{ConditionType, Desired, Reason};

/// The next step, the conditions to report, and when to requeue if nothing changes before. The top of each controller lists the writes of its
/// steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<S> {
    pub step: S,
    pub conditions: Vec<Desired>,
    pub requeue_after: Option<Duration>,
}

impl<S> Decision<S> {
    pub fn new(step: S) -> Self {
        Self { step, conditions: Vec::new(), requeue_after: None }
    }
    pub fn with_condition(mut self, condition: Desired) -> Self {
        self.conditions.push(condition);
        self
    }
    pub fn requeue_after(mut self, after: Duration) -> Self {
        self.requeue_after = Some(after);
        self
    }
}

/// Waits shorter than this are not reported: each report is a write, and thousands of machines wait a moment for their turn.
pub const QUIET: Duration = Duration::from_secs(10);

/// Returns how much of [`QUIET`] is left since `since`; `None` when it is over, so that the wait must be reported.
pub fn quiet_left(since: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let waited = Duration::try_from(now.duration_since(since?)).unwrap_or_default();
    QUIET.checked_sub(waited).filter(|left| !left.is_zero())
}

/// Decides to wait for something that resolves itself: Ready reports the wait only when it lasts.
pub fn waiting<S>(step: S, meta: &ObjectMeta, why: Reason, message: impl Into<String>, now: Timestamp) -> Decision<S> {
    match quiet_left(created(meta), now) {
        Some(left) => Decision::new(step).requeue_after(left),
        None => Decision::new(step).with_condition(Desired::no(ConditionType::Ready, why, message)),
    }
}
