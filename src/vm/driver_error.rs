//! Errors of a hypervisor.

use std::time::Duration;

use thiserror::Error;

/// Why a call failed, in the classes that decide what happens next. Messages name the object and the remedy and never contain a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DriverError {
    /// An object that the spec names does not exist.
    #[error("{text}")]
    Missing { thing: Thing, text: String },
    /// An object that is not ours is in the way.
    #[error("{0}")]
    Conflict(String),
    /// The endpoint is busy; retry after that time.
    #[error("the hypervisor is busy")]
    Busy { after: Duration },
    /// The credentials are refused.
    #[error("{0}")]
    Auth(String),
    /// The credentials lack a permission.
    #[error("{0}")]
    Denied(String),
    /// The endpoint's certificate, or host key, is not the trusted one. Nothing was sent.
    #[error("{0}")]
    Certificate(String),
    /// The endpoint is not the one that the machines were created on.
    #[error("{0}")]
    EndpointChanged(String),
    /// The hypervisor has no free capacity.
    #[error("{0}")]
    Capacity(String),
    /// The request can never succeed as it is.
    #[error("{0}")]
    Invalid(String),
    /// The endpoint cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// A temporary fault; retry.
    #[error("{0}")]
    Transient(String),
    /// The reply was lost: observe, never repeat blindly.
    #[error("{0}")]
    Unknown(String),
}

/// A kind of object that can be missing on a hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    Image,
    Network,
    /// The place for VMs: a storage pool, a folder, a node.
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
