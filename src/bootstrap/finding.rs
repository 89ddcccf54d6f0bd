//! What the rules of [`super::check::lint`] say about a configuration.

use std::fmt;

/// Whether a node would come up with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The kubelet would not start, or do something else than what is asked: refused.
    Error,
    /// It has no effect, or one that surprises: told.
    Warning,
}

/// What a rule has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// `L1` to `L24`.
    pub rule: &'static str,
    pub severity: Severity,
    /// Where users wrote it, or would.
    pub field: String,
    pub value: String,
    pub remedy: String,
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {:?}: {}", self.rule, self.field, self.value, self.remedy)
    }
}

/// The warnings for a person; empty when there are none.
pub fn explain(warnings: &[LintFinding]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let lines: String = warnings.iter().map(|finding| format!("  {finding}\n")).collect();
    format!("\nWhat has no effect, or one that surprises:\n{lines}")
}

/// The same as one message of a condition: the first ten, and how many more there are.
pub fn message(findings: &[LintFinding]) -> String {
    let mut text = findings.iter().take(MESSAGE).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if findings.len() > MESSAGE {
        text.push_str(&format!("; and {} more", findings.len() - MESSAGE));
    }
    text
}

/// Most findings in one message.
const MESSAGE: usize = 10;
