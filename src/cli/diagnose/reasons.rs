//! What a reason of a condition is in the words of a finding.

use crate::api::condition::{ConditionType, Reason};
use crate::cli::output::plain;
use crate::diagnosis::{Certainty, Evidence, Finding, Symptom};

/// The finding that a problem of an object is: its own message is the cause.
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

/// Problems of the join repeat what the guest said, or say only that time is over: the doctor has looked at the facts behind them.
pub(super) fn repeats_the_guest(reason: Reason) -> bool {
    reason.condition() == Some(ConditionType::NodeJoined)
}
