//! What a reason of a condition is in the words of a finding.

use crate::api::condition::{ConditionType, Reason};
use crate::diagnosis::{Certainty, Evidence, Finding, Sign};

/// The finding that a problem of an object is: its own message is the cause.
pub(super) fn finding(sign: &Sign, reason: Reason) -> Finding {
    let plain = |markdown: &str| markdown.replace('`', "");
    let message = sign.text.split_once(": ").map_or(sign.text.as_str(), |(_, message)| message);
    Finding {
        id: reason.to_string(),
        title: plain(reason.meaning().trim_end_matches('.')),
        certainty: Certainty::Certain,
        cause: message.to_owned(),
        remedy: plain(reason.remedy()),
        links: Vec::new(),
        evidence: vec![Evidence { at: sign.at.clone(), text: sign.text.chars().take(400).collect() }],
        seen: 1,
    }
}

/// Problems of the join repeat what the guest said, or say only that time is over: the doctor has looked at the facts behind them.
pub(super) fn repeats_the_guest(reason: Reason) -> bool {
    reason.condition() == Some(ConditionType::NodeJoined)
}
