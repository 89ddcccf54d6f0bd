//! Formats the output for people.

use super::answer::Answer;
use crate::diagnosis::{Certainty, Finding};

pub(super) fn text(answer: &Answer) -> String {
    let mut text = format!("{}\n", answer.subject);
    if answer.findings.is_empty() {
        text.push_str("\nNothing known to be wrong was found.\n");
    }
    for (number, finding) in answer.findings.iter().enumerate() {
        text.push_str(&paragraph(number + 1, finding));
    }
    for reason in &answer.not_looked_at {
        text.push_str(&format!("\nnot looked at: {reason}\n"));
    }
    text
}

fn paragraph(number: usize, finding: &Finding) -> String {
    let sure = match finding.certainty {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        Certainty::Possible => "possible",
    };
    let mut text = format!("\n{number}. {} {} ({sure})\n", finding.id, finding.title);
    let mut line = |label: &str, words: &str| text.push_str(&format!("   {label:<7} {words}\n"));
    for evidence in &finding.evidence {
        line("seen", &format!("{}: {}", evidence.at, evidence.text));
    }
    if finding.seen > finding.evidence.len() {
        line("", &format!("and {} more", finding.seen - finding.evidence.len()));
    }
    line("cause", &finding.cause);
    line("remedy", &finding.remedy);
    for link in &finding.links {
        line("see", link);
    }
    text
}
