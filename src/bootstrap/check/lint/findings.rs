//! The findings of the rules.

use crate::bootstrap::finding::{LintFinding, Severity};

/// The length of a value in a message, in characters.
const SHOWN: usize = 80;

/// The findings so far.
#[derive(Default)]
pub(super) struct Findings(pub Vec<LintFinding>);

impl Findings {
    pub fn error(&mut self, rule: &'static str, field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) {
        self.add(rule, Severity::Error, field.into(), value.into(), remedy.into());
    }

    pub fn warning(&mut self, rule: &'static str, field: impl Into<String>, value: impl Into<String>, remedy: impl Into<String>) {
        self.add(rule, Severity::Warning, field.into(), value.into(), remedy.into());
    }

    fn add(&mut self, rule: &'static str, severity: Severity, field: String, value: String, remedy: String) {
        let value = value.chars().take(SHOWN).collect();
        self.0.push(LintFinding { rule, severity, field, value, remedy });
    }
}
