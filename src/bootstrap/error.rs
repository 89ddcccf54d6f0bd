//! The reasons why a machine cannot be rendered.

use thiserror::Error;

use super::digest::CaError;
use super::finding::{self, LintFinding};
use crate::api::bootstrap_config::Channel;
use crate::compat::Incompatible;

/// The reason why a machine cannot be rendered: the field, the value and the remedy. Never contains a secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// A value that cannot work on Windows.
    #[error("{field}: {value:?}: {remedy}")]
    Invalid { field: String, value: String, remedy: String },
    /// Versions that cannot work together.
    #[error("{0}")]
    Incompatible(Incompatible),
    /// The cluster's CA cannot be read.
    #[error("certificate authority: {0}")]
    Ca(#[from] CaError),
    /// The data does not fit into its channel.
    #[error("spec.channel: {channel}: the bootstrap data has {} bytes, the limit is {} ({}): {remedy}", size.bytes, size.limit, size.limit_name)]
    TooLarge { channel: Channel, size: DataSize, remedy: &'static str },
    /// All errors that the rules found.
    #[error("{}", finding::message(.0))]
    Lint(Vec<LintFinding>),
    /// A defect of CAPW: a configuration that cannot be serialized.
    #[error("{what} cannot be written: {reason}; please report this")]
    Serialize { what: &'static str, reason: String },
}

impl RenderError {
    pub(super) fn invalid(field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), value: value.into(), remedy: remedy.into() }
    }
}

/// The size of the bootstrap data, and the limit of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSize {
    /// The size as the channel counts it.
    pub bytes: usize,
    pub limit: usize,
    /// The name of the limit.
    pub limit_name: &'static str,
}
