//! The results of checks and cases, as a table.

use serde::Serialize;

/// The result of one check.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub hypervisor: String,
    /// The name of the check.
    pub check: String,
    pub ok: bool,
    /// The reason that the object's condition would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    pub message: String,
}

pub(super) fn table(findings: &[Finding]) -> String {
    let width = |of: fn(&Finding) -> usize| findings.iter().map(of).max().unwrap_or_default();
    let (names, checks) = (width(|finding| finding.hypervisor.len()), width(|finding| finding.check.len()));
    let line = |finding: &Finding| {
        let result = finding.reason.unwrap_or(if finding.ok { "ok" } else { "failed" });
        format!("{:names$}  {:checks$}  {result}: {}\n", finding.hypervisor, finding.check, finding.message)
    };
    findings.iter().map(line).collect()
}
