//! What is wrong with the Linux side, and what to do about it.

use serde_json::Value;

use super::place::ObjectRef;
use crate::api::condition::Reason;

/// Whether Windows nodes work with it, though it should be put right.
pub const fn is_warning(reason: Reason) -> bool {
    matches!(reason, Reason::PortUnknown | Reason::SourcesDisagree | Reason::OperatorDegraded)
}

/// What puts an object right.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A merge patch of it.
    Merge(Value),
    /// All of it, because it is not there. Who manages `beside` has to make it too.
    New { object: Value, beside: ObjectRef },
}

impl Patch {
    /// What is merged into what is there of the object.
    pub const fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::New { object: value, .. } => value,
        }
    }

    /// The command that applies it to this object, for a shell.
    pub fn command(&self, object: &ObjectRef) -> String {
        let quoted = |value: &Value| format!("'{}'", value.to_string().replace('\'', r"'\''"));
        match self {
            Self::Merge(patch) => format!("kubectl patch {} --type merge -p {}", object.for_kubectl(), quoted(patch)),
            Self::New { object, .. } => format!("printf %s {} | kubectl create -f -", quoted(object)),
        }
    }
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
    /// `None`: CAPW never changes the object; the remedy is the procedure.
    pub patch: Option<Patch>,
    pub remedy: String,
}

impl Finding {
    /// The command that applies the patch, for a shell.
    pub fn command(&self) -> Option<String> {
        Some(self.patch.as_ref()?.command(&self.object))
    }
}
