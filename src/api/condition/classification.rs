//! The classification of a reason: whether it is a problem, where its cause is, and what to do.

use super::blame::{Blame, Severity};
use super::condition_type::ConditionType;
use super::reason::Reason;

impl Reason {
    /// The reason of this name, if it is one of ours.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
    }

    pub const fn severity(self) -> Severity {
        self.entry().severity
    }

    /// Whether the reason becomes a Warning event.
    pub const fn is_problem(self) -> bool {
        matches!(self.severity(), Severity::Warning(_))
    }

    /// The place of the cause, if the reason is a problem.
    pub const fn blame(self) -> Option<Blame> {
        match self.severity() {
            Severity::Normal => None,
            Severity::Warning(blame) => Some(blame),
        }
    }

    /// The condition that reports exactly this reason; Ready and others may repeat it. `None` if only an event reports it.
    pub const fn condition(self) -> Option<ConditionType> {
        self.entry().condition
    }

    /// What to do, in Markdown.
    pub const fn remedy(self) -> &'static str {
        self.entry().remedy
    }
}
