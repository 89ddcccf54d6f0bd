//! What docs/conditions.md says about a reason: the page is the data.

use crate::api::condition::{GUEST_GAVE_UP, reason};
use crate::diagnosis::{Certainty, Evidence, Finding, Symptom};

const PAGE: &str = include_str!("../../../docs/conditions.md");

/// What a reason means and what to do, without Markdown.
fn explained(reason: &str) -> Option<(String, String)> {
    let (_, table) = PAGE.split_once("\n## Reasons\n")?;
    let row = table.lines().find_map(|line| line.strip_prefix(&format!("| `{reason}` | ")))?;
    let mut cells = row.split(" | ");
    let plain = |cell: &str| cell.trim_end_matches('|').trim().replace('`', "");
    Some((plain(cells.next()?), plain(cells.next()?)))
}

/// The finding that a problem of an object is: its own message is the cause.
pub(super) fn finding(symptom: &Symptom, reason: &str) -> Finding {
    let (title, remedy) = explained(reason).unwrap_or_default();
    let message = symptom.text.split_once(": ").map_or(symptom.text.as_str(), |(_, message)| message);
    Finding {
        id: reason.to_owned(),
        title: title.trim_end_matches('.').to_owned(),
        certainty: Certainty::Certain,
        cause: message.to_owned(),
        remedy,
        links: Vec::new(),
        evidence: vec![Evidence { at: symptom.at.clone(), text: symptom.text.chars().take(400).collect() }],
        seen: 1,
    }
}

/// Reasons that repeat what the guest said, or say only that time is over: the doctor has looked at the facts behind them.
pub(super) fn repeats_the_guest(why: &str) -> bool {
    why == reason::NODE_NEVER_JOINED || GUEST_GAVE_UP.contains(&why)
}
