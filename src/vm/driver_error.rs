//! Why a hypervisor did not do what was asked.

use std::time::Duration;

use thiserror::Error;

/// Why a call failed, in the classes that decide what happens next. Texts name the thing and the remedy and never hold a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DriverError {
    /// What the spec names is not there.
    #[error("{text}")]
    Missing { thing: Thing, text: String },
    /// Something that is not ours is in the way.
    #[error("{0}")]
    Conflict(String),
    /// The endpoint is busy; try again after that time.
    #[error("the hypervisor is busy")]
    Busy { after: Duration },
    /// The credentials are refused.
    #[error("{0}")]
    Auth(String),
    /// The credentials lack a permission.
    #[error("{0}")]
    Denied(String),
    /// The endpoint's certificate, or host key, is not the one that is trusted. Nothing was sent.
    #[error("{0}")]
    Certificate(String),
    /// Another endpoint than the one that the machines were made on answers.
    #[error("{0}")]
    EndpointChanged(String),
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

/// What can be missing on a hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    Image,
    Network,
    /// Where VMs are put: a storage pool, a folder, a node.
    Placement,
}

impl DriverError {
    /// A label for metrics: few, fixed values.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Conflict(_) => "conflict",
            Self::Busy { .. } => "busy",
            Self::Auth(_) => "auth",
            Self::Denied(_) => "denied",
            Self::Certificate(_) => "certificate",
            Self::EndpointChanged(_) => "endpoint_changed",
            Self::Capacity(_) => "capacity",
            Self::Invalid(_) => "invalid",
            Self::Unreachable(_) => "unreachable",
            Self::Transient(_) => "transient",
            Self::Unknown(_) => "unknown",
        }
    }
}
