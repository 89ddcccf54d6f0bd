//! What is wrong with the Linux side, and what to do about it.

use serde_json::Value;

use super::place::ObjectRef;
use crate::api::condition::Reason;

/// Whether Windows nodes work with it, though it should be put right.
pub const fn is_warning(reason: Reason) -> bool {
    matches!(reason, Reason::PortUnknown | Reason::SourcesDisagree)
}

/// Something that is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Those of the condition NetworkCompatible, in the order of findings: what makes others pointless comes first.
    pub reason: Reason,
    pub object: ObjectRef,
    /// The field of the object, e.g. `spec.strictAffinity`.
    pub field: String,
    pub message: String,
    /// A merge patch of the object that puts it right. `None`: CAPW never changes it; the remedy is the procedure.
    pub patch: Option<Value>,
    pub remedy: String,
}

impl Finding {
    /// The command that applies the patch, for a shell.
    pub fn command(&self) -> Option<String> {
        let patch = self.patch.as_ref()?.to_string().replace('\'', r"'\''");
        Some(format!("kubectl patch {} --type merge -p '{patch}'", self.object.for_kubectl()))
    }
}
