//! How a pass ends: when the next pass is due, or why this one failed and when it is retried.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use thiserror::Error;

use crate::hypervisor::DriverError;
use crate::kube_api::error::{ApiError, Retry};
use crate::kube_api::workload::WorkloadError;

/// When the next pass is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(super) requeue_after: Option<Duration>,
}

impl Outcome {
    /// No pass until something changes.
    pub fn done() -> Self {
        Self { requeue_after: None }
    }

    /// Another pass at once, because this one changed something.
    pub fn now() -> Self {
        Self { requeue_after: Some(Duration::ZERO) }
    }

    /// Another pass at the time that a decision requires.
    pub fn of(requeue_after: Option<Duration>) -> Self {
        Self { requeue_after }
    }

    /// Adds a limit: another pass no later than after that time.
    pub fn at_latest(self, after: Duration) -> Self {
        Self { requeue_after: Some(self.requeue_after.map_or(after, |next| next.min(after))) }
    }

    /// Another pass after that time, or earlier when something changes.
    pub fn requeue_after(after: Duration) -> Self {
        Self { requeue_after: Some(after) }
    }
}

/// Why a pass failed, by layer.
#[derive(Clone, Debug, Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The user's configuration cannot be carried out; a change triggers the next pass.
    #[error("{0}")]
    Invalid(String),
    /// A defect in CAPW: the pass panicked. The panic message is in the log.
    #[error("the pass ended by a defect in CAPW; its log has the details")]
    Defect,
}

impl ReconcileError {
    /// A label for metrics: few, fixed values.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Api(error) => error.label(),
            Self::Workload(error) => error.label(),
            Self::Driver(error) => error.label(),
            Self::Invalid(_) => "invalid_object",
            Self::Defect => "defect",
        }
    }

    /// As [`ApiError::is_refusal`].
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Api(error) | Self::Workload(WorkloadError::Api(error)) if error.is_refusal())
    }

    /// As [`WorkloadError::is_pending`].
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Workload(error) if error.is_pending())
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Workload(error) => error.retry(),
            // The next pass shows whether a call whose reply was lost has succeeded.
            Self::Driver(DriverError::Unknown(_)) => Retry::Soon,
            Self::Driver(_) | Self::Defect => Retry::Backoff,
            Self::Invalid(_) => Retry::OnChange,
        }
    }

    /// The shortest delay, as the other side requested it.
    fn not_before(&self) -> Duration {
        match self {
            Self::Api(error) => error.not_before(),
            Self::Workload(error) => error.not_before(),
            Self::Driver(DriverError::Busy { after }) => *after,
            Self::Driver(_) | Self::Invalid(_) | Self::Defect => Duration::ZERO,
        }
    }
}

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
