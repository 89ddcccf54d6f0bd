//! Why something cannot be rendered.

use thiserror::Error;

use super::cloudbase::Room;
use super::facts::CaError;
use super::lint::{self, Finding};
use crate::api::bootstrap_config::Channel;
use crate::compat::Incompatible;

/// Names the field, the value and the remedy. Never holds a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// A value that cannot work on Windows.
    #[error("{field}: {value:?}: {remedy}")]
    Invalid { field: String, value: String, remedy: String },
    /// Versions that cannot work together.
    #[error("{0}")]
    Incompatible(Incompatible),
    /// The CA of the cluster cannot be read.
    #[error("certificate authority: {0}")]
    Ca(#[from] CaError),
    /// The data does not fit into its channel. Sizes in bytes.
    #[error("spec.channel: {channel}: the bootstrap data has {} bytes, the limit is {} ({}): {remedy}", room.size, room.limit, room.name)]
    TooLarge { channel: Channel, room: Room, remedy: &'static str },
    /// What the rules refuse, all of it.
    #[error("{}", lint::message(.0))]
    Lint(Vec<Finding>),
    /// A defect of ours: a configuration that cannot be written down.
    #[error("{what} cannot be written: {reason}; please report this")]
    Serialize { what: &'static str, reason: String },
}

impl RenderError {
    pub(super) fn invalid(field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), value: value.into(), remedy: remedy.into() }
    }
}

/// Why bytes are not the bootstrap data of ours. What a reader gets comes from outside: nothing in it is trusted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    #[error("user data: {0}")]
    UserData(String),
    #[error("archive: {0}")]
    Archive(String),
    #[error("node.json: {0}")]
    Plan(String),
    #[error("config drive: {0}")]
    Image(String),
    #[error("metadata: {0}")]
    MetaData(String),
    #[error("unattend.xml: {0}")]
    Answer(String),
    #[error("guestinfo: {0}")]
    GuestInfo(String),
}
