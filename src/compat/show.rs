//! Answers and data as text.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::data::{Basis, Data, Edge, Verdict};
use super::part::{Component, Part, Question};
use super::solve::{Answer, Change, Finding, Nearest};

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Warns => "warns",
            Self::Depends => "depends",
            Self::Unknown => "unknown",
            Self::Fails => "fails",
        }
    }

    /// Returns the short answer.
    fn answer(self) -> &'static str {
        match self {
            Self::Works | Self::Warns => "yes",
            Self::Depends => "depends",
            Self::Unknown => "unknown",
            Self::Fails => "no",
        }
    }
}

impl Basis {
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Documentation => "documentation",
            Self::Issue => "issue",
            Self::Announced => "announced",
            Self::Derived => "derived",
        }
    }
}

/// Shows a change: `containerd 2.3.7 instead of containerd 1.7`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.component, self.to.product == self.from.product) {
            (Component::Windows, true) => write!(f, "the current updates of {} instead of {}", self.to, self.from),
            _ => write!(f, "{} instead of {}", self.to, self.from),
        }
    }
}

/// Serializes the choice by component, as the flags of `capw compat` take it.
impl Serialize for Question {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.parts().map(|part| (part.component.name(), part.written())))
    }
}

impl Serialize for Nearest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Nearest", 2)?;
        out.serialize_field("set", &self.set)?;
        out.serialize_field("changes", &self.changes)?;
        out.end()
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Answer", 4)?;
        out.serialize_field("answer", self.verdict.answer())?;
        out.serialize_field("question", &self.question)?;
        out.serialize_field("findings", &self.findings)?;
        out.serialize_field("nearest", &self.nearest)?;
        out.end()
    }
}

/// Returns the names of components, joined.
fn names(between: &[Component]) -> String {
    between.iter().map(|component| component.name()).collect::<Vec<_>>().join(" + ")
}

/// Returns text: the answer, the findings, worst first, and the nearest set that works.
pub fn table(answer: &Answer) -> String {
    let parts: Vec<String> = answer.question.parts().map(Part::to_string).collect();
    let mut text = format!("{}\nanswer: {}\n\n", parts.join(", "), answer.verdict.answer());
    let mut findings: Vec<&Finding> = answer.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let width = findings.iter().map(|finding| names(&finding.between).len()).max().unwrap_or_default();
    for finding in findings {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{:<8} {:<width$}  {}", finding.verdict.name(), names(&finding.between), finding.why);
        if let (Some(source), Some(checked), Some(basis)) = (&finding.source, &finding.checked, finding.basis) {
            let _ = writeln!(text, "{:<8} {:<width$}  {source} ({checked}, {})", "", "", basis.name());
        }
    }
    match (&answer.nearest, answer.accepted()) {
        (_, true) => {}
        (Some(nearest), _) => {
            let changes: Vec<String> = nearest.changes.iter().map(Change::to_string).collect();
            let flags: Vec<String> = nearest.set.parts().map(|part| format!("--{} {}", part.component, part.written())).collect();
            let _ = writeln!(text, "\nnearest set that works: {}\n  capw compat {}", changes.join(", "), flags.join(" "));
        }
        (None, _) => text.push_str("\nno set that is known to work is near\n"),
    }
    text
}

/// Returns the conditions of a row: `kubernetes 1.35..1.38, windows 2025`.
fn when(conditions: &BTreeMap<Component, Vec<String>>) -> String {
    conditions.iter().map(|(component, texts)| format!("{component} {}", texts.join(" or "))).collect::<Vec<_>>().join(", ")
}

/// Returns all data as Markdown tables, one per edge.
pub fn markdown(data: &Data) -> String {
    let mut text = String::new();
    for Edge { between, about, rows } in &data.edges {
        let _ = write!(text, "### {}\n\n{about}\n\n| When | Verdict | Why | Checked |\n|---|---|---|---|\n", names(between));
        for row in rows {
            let basis = row.basis.name();
            let _ = writeln!(text, "| `{}` | {} | {} | [{}]({}), {basis} |", when(&row.when), row.verdict.name(), row.why, row.checked, row.source);
        }
        text.push('\n');
    }
    text
}
