//! Finds troubles in conditions.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::entry::{State, Trouble};
use crate::api::condition::{self, ConditionType, Reason};
use crate::cli::output::plain;
use crate::domain::age::seconds;

/// Returns the troubles in an object's conditions, worst first, each reason once, because Ready repeats another condition.
pub(super) fn of(conditions: &[Condition], now: Timestamp) -> Vec<Trouble> {
    let mut wrong: Vec<&Condition> = conditions.iter().filter(|condition| is_wrong(condition)).collect();
    wrong.sort_by_key(|condition| (Reverse(state(condition)), condition.type_ != ConditionType::Ready.as_ref()));
    let mut troubles: Vec<Trouble> = Vec::new();
    for condition in wrong {
        if !troubles.iter().any(|known| known.reason == condition.reason) {
            troubles.push(trouble(condition, state(condition), now));
        }
    }
    // While reconciliation is paused, troubles persist.
    if let Some(paused) = condition::find(conditions, ConditionType::Paused).filter(|paused| paused.status == "True" && !troubles.is_empty()) {
        troubles.insert(0, trouble(paused, State::Hangs, now));
    }
    troubles
}

/// Converts a condition to a trouble.
pub(super) fn trouble(condition: &Condition, state: State, now: Timestamp) -> Trouble {
    let known = Reason::from_name(&condition.reason).filter(|_| condition.message.is_empty());
    Trouble {
        state,
        reason: condition.reason.clone(),
        message: known.map_or_else(|| condition.message.clone(), |reason| plain(reason.meaning())),
        remedy: known.map(|reason| plain(reason.remedy())),
        command: None,
        seconds: Some(seconds(condition.last_transition_time.0, now)),
    }
}

/// Whether one of our conditions reports a trouble. Paused alone is no trouble.
fn is_wrong(condition: &Condition) -> bool {
    let Some(type_) = ConditionType::ALL.iter().find(|type_| condition.type_ == type_.as_str()) else { return false };
    match type_ {
        ConditionType::Paused => false,
        ConditionType::Deleting => condition.status == "True",
        _ => condition.status != "True",
    }
}

/// An unknown reason, from a newer controller, counts as a problem.
fn state(condition: &Condition) -> State {
    if Reason::from_name(&condition.reason).is_none_or(Reason::is_problem) { State::Hangs } else { State::UnderWay }
}
