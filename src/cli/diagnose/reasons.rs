//! Converts a condition's reason to a finding.

use crate::api::condition::{ConditionType, Reason};
use crate::cli::output::plain;
use crate::diagnosis::{Certainty, Evidence, Finding, Symptom};

/// Returns the finding for a problem of an object: the object's own message is the cause.
pub(super) fn finding(symptom: &Symptom, reason: Reason) -> Finding {
    let message = symptom.text.split_once(": ").map_or(symptom.text.as_str(), |(_, message)| message);
    Finding {
        id: reason.to_string(),
        title: plain(reason.meaning().trim_end_matches('.')),
        certainty: Certainty::Certain,
        cause: message.to_owned(),
        remedy: plain(reason.remedy()),
        links: Vec::new(),
        evidence: vec![Evidence { at: symptom.at.clone(), text: symptom.text.chars().take(400).collect() }],
        seen: 1,
    }
}

/// Problems of the join repeat the guest's report, or only state that the time limit has passed: the doctor checks the facts behind them.
pub(super) fn repeats_the_guest(reason: Reason) -> bool {
    reason.condition() == Some(ConditionType::NodeJoined)
}
