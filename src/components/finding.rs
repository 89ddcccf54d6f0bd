//! The problems of the Linux side, and their remedies.

use serde_json::Value;

use super::place::ObjectRef;
use crate::api::condition::Reason;

/// Whether Windows nodes work despite this problem, though the user should fix it.
pub const fn is_warning(reason: Reason) -> bool {
    matches!(reason, Reason::PortUnknown | Reason::SourcesDisagree | Reason::OperatorDegraded)
}

/// The correction of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A merge patch of the object.
    Merge(Value),
    /// The whole object, because it is missing. The manager of `beside` has to create this object too.
    New { object: Value, beside: ObjectRef },
}

impl Patch {
    /// The value that is merged into the existing object.
    pub const fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::New { object: value, .. } => value,
        }
    }

    /// The shell command that applies the patch to this object.
    pub fn command(&self, object: &ObjectRef) -> String {
        let quoted = |value: &Value| format!("'{}'", value.to_string().replace('\'', r"'\''"));
        match self {
            Self::Merge(patch) => format!("kubectl patch {} --type merge -p {}", object.for_kubectl(), quoted(patch)),
            Self::New { object, .. } => format!("printf %s {} | kubectl create -f -", quoted(object)),
        }
    }
}

/// A problem, its place, and its remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A reason of the condition NetworkCompatible. The reasons are ordered: a problem that renders others irrelevant comes first.
    pub reason: Reason,
    pub object: ObjectRef,
    /// The field of the object, e.g. `spec.strictAffinity`.
    pub field: String,
    pub message: String,
    /// `None`: CAPW never changes the object; the remedy describes the procedure.
    pub patch: Option<Patch>,
    pub remedy: String,
}

impl Finding {
    /// The shell command that applies the patch.
    pub fn command(&self) -> Option<String> {
        Some(self.patch.as_ref()?.command(&self.object))
    }
}
