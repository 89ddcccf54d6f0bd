//! Why a hypervisor did not do what was asked.

use std::time::Duration;

use thiserror::Error;

/// Why a call failed, in the classes that decide what happens next. Texts name the thing and the remedy and never hold a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DriverError {
    /// What the spec names is not there (image, network, pool).
    #[error("{0}")]
    NotFound(String),
    /// Something that is not ours is in the way.
    #[error("{0}")]
    Conflict(String),
    /// The endpoint is busy; try again after that time.
    #[error("the hypervisor is busy")]
    Busy { after: Duration },
    /// The credentials are refused.
    #[error("{0}")]
    Auth(String),
    /// There is no room.
    #[error("{0}")]
    Capacity(String),
    /// The request can never succeed as it is.
    #[error("{0}")]
    Invalid(String),
    /// The endpoint cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// A passing fault; try again.
    #[error("{0}")]
    Transient(String),
    /// The reply was lost: observe, never repeat blindly.
    #[error("{0}")]
    Unknown(String),
}

impl DriverError {
    /// A label for metrics: few, fixed values.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Busy { .. } => "busy",
            Self::Auth(_) => "auth",
            Self::Capacity(_) => "capacity",
            Self::Invalid(_) => "invalid",
            Self::Unreachable(_) => "unreachable",
            Self::Transient(_) => "transient",
            Self::Unknown(_) => "unknown",
        }
    }
}
