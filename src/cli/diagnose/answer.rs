//! The answer of `capw diagnose`.

use serde::Serialize;

use crate::diagnosis::Finding;

/// The output.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    /// The diagnosed object and its state, in one line.
    pub subject: String,
    /// The findings, most certain first.
    pub findings: Vec<Finding>,
    /// The parts that could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<String>,
}
