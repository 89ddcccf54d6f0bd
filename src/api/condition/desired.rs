//! The conditions that a decision wants, and the one rule by which a condition changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::condition_type::ConditionType;
use super::find::find;
use super::reason::Reason;

/// The most characters of a message.
const LONGEST_MESSAGE: usize = 4_000;

/// A condition that a decision wants; [`apply`] adds its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub type_: ConditionType,
    /// `Some(true)` is `True`, `Some(false)` is `False`, `None` is `Unknown`.
    pub status: Option<bool>,
    pub reason: Reason,
    pub message: String,
}

impl Desired {
    pub fn yes(type_: ConditionType, reason: Reason) -> Self {
        Self { type_, status: Some(true), reason, message: String::new() }
    }
    pub fn no(type_: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self { type_, status: Some(false), reason, message: message.into() }
    }
    pub fn unknown(type_: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self { type_, status: None, reason, message: message.into() }
    }
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }
}

/// Returns `current` with every condition of `desired` set. The transition time changes only with the status, and conditions that
/// `desired` does not name stay. The order is by type, so that equal sets are equal lists.
pub fn apply(current: &[Condition], desired: &[Desired], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let mut next: Vec<Condition> = current.to_vec();
    for want in desired {
        let status = match want.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let since = find(current, want.type_).filter(|had| had.status == status);
        let condition = Condition {
            type_: want.type_.to_string(),
            status: status.into(),
            reason: want.reason.to_string(),
            message: cut(&want.message),
            observed_generation: generation,
            last_transition_time: since
                .map_or_else(|| Time(Timestamp::from_second(now.as_second()).unwrap_or(now)), |had| had.last_transition_time.clone()),
        };
        match next.iter_mut().find(|c| c.type_ == want.type_) {
            Some(slot) => *slot = condition,
            None => next.push(condition),
        }
    }
    next.sort_by(|a, b| a.type_.cmp(&b.type_));
    next
}

/// Cuts a message to the length that Cluster API can copy.
fn cut(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}
