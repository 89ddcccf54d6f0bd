//! How a pass ends: when the next pass is due, or why this one failed and when it is retried.

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
    pub(super) fn not_before(&self) -> Duration {
        match self {
            Self::Api(error) => error.not_before(),
            Self::Workload(error) => error.not_before(),
            Self::Driver(DriverError::Busy { after }) => *after,
            Self::Driver(_) | Self::Invalid(_) | Self::Defect => Duration::ZERO,
        }
    }
}
