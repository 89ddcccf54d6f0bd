//! The findings of the rules of `check/lint` about a configuration.

use std::fmt;

/// The severity of a finding: whether a node would work with the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The kubelet would not start, or would not apply the setting: rejected.
    Error,
    /// The setting has no effect, or an unexpected one: rendered with a warning.
    Warning,
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// The number of the rule, `L1` to `L27`.
    pub rule: &'static str,
    pub severity: Severity,
    /// The field in the users' objects.
    pub field: String,
    pub value: String,
    pub remedy: String,
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {:?}: {}", self.rule, self.field, self.value, self.remedy)
    }
}

/// Returns the warnings as text for `--explain`; empty if there are none.
pub fn explain(warnings: &[LintFinding]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let lines: String = warnings.iter().map(|finding| format!("  {finding}\n")).collect();
    format!("\nSettings without effect, or with an unexpected one:\n{lines}")
}

/// Returns the findings as the message of a condition: the first ten, and the number of the others.
pub fn message(findings: &[LintFinding]) -> String {
    let mut text = findings.iter().take(MESSAGE).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if findings.len() > MESSAGE {
        text.push_str(&format!("; and {} more", findings.len() - MESSAGE));
    }
    text
}

/// The most findings in one message.
const MESSAGE: usize = 10;
