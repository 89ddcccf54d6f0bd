//! One step of the plan.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::kind::{Kind, is_false};
use crate::vm::FailureCode;

/// A step: test, act, test again.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Unique and stable: it appears in status, logs and documentation.
    pub id: String,
    #[serde(flatten)]
    pub kind: Kind,
    /// The failure code of the plan if this item fails.
    pub code: FailureCode,
    /// The time limit of one attempt, in seconds.
    pub seconds: u32,
    /// The attempts before the item counts as failed.
    pub attempts: u32,
    /// The item is skipped if this check holds, e.g. for a secret that was used and removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless: Option<Check>,
    /// Whether a failure is only reported as a warning, and the plan continues.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// The reason for the item, for `--explain`; not sent to the node.
    #[serde(skip)]
    pub why: Why,
}

/// The reason for an item, for `--explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Why {
    pub reason: &'static str,
    pub link: &'static str,
    /// The remedy if the item fails.
    pub remedy: &'static str,
}
