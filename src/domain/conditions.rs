//! Carries conditions over from one status to the next.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::gate::paused_condition;
use crate::api::condition::{self, ConditionType, Desired};

/// Returns the conditions and the `observedGeneration` of the next status: the desired conditions on top of the stored ones.
pub fn carry_over(
    stored: &[Condition],
    stored_generation: Option<i64>,
    said: &[Desired],
    generation: Option<i64>,
    now: Timestamp,
) -> (Vec<Condition>, Option<i64>) {
    let next = conditions(stored, said, generation, now);
    let generation = observed(&next, generation, stored_generation);
    (next, generation)
}

/// Applies desired conditions to the current ones. If there are any, Paused is reported too. The other conditions hold for the present generation as
/// well, because the decision has seen it.
fn conditions(current: &[Condition], said: &[Desired], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    if let [only] = said
        && still_paused(current, only)
    {
        // Not even the generation is recorded: the status of a paused object is never written, whatever changes in the object.
        return current.to_vec();
    }
    let mut said = said.to_vec();
    let stale_pause = condition::is_true(current, ConditionType::Paused);
    if (stale_pause || !said.is_empty()) && !said.iter().any(|d| d.type_ == ConditionType::Paused) {
        said.push(paused_condition(None));
    }
    let mut next = condition::apply(current, &said, generation, now);
    next.iter_mut().for_each(|condition| condition.observed_generation = generation);
    next
}

/// Returns the observed generation of a status with these conditions. It does not change while the object is paused or has no conditions.
fn observed(conditions: &[Condition], generation: Option<i64>, before: Option<i64>) -> Option<i64> {
    if conditions.is_empty() || condition::is_true(conditions, ConditionType::Paused) { before } else { generation }
}

/// Returns the condition of a failure, with the stored message if the two differ in numbers only. A changed status triggers a pass: the call would
/// be retried at once, and the next failure might contain another number.
pub fn in_stored_words(current: &[Condition], said: Desired) -> Desired {
    let stored = condition::find(current, said.type_).filter(|c| c.reason == said.reason.as_str() && is_same(&c.message, &said.message));
    match stored {
        Some(stored) => said.with_message(stored.message.clone()),
        None => said,
    }
}

/// Whether two texts differ only in parts with digits: times, addresses, numbers of processes, tasks and attempts.
pub fn is_same(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric());
        words.map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "0" } else { word }.to_owned()).collect::<Vec<_>>()
    };
    words(one) == words(other)
}

/// Whether the desired condition repeats the stored Paused condition.
fn still_paused(current: &[Condition], said: &Desired) -> bool {
    let known = condition::find(current, ConditionType::Paused);
    said.type_ == ConditionType::Paused && said.status == Some(true) && known.is_some_and(|c| c.status == "True" && c.message == said.message)
}

/// Rounds to whole seconds, as the API server stores them: a finer time would differ from the stored one and be written again.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::condition::Reason;

    #[test]
    fn what_is_paused_is_said_once_whatever_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ready = [Desired::yes(ConditionType::Ready, Reason::Provisioned)];
        let paused = [paused_condition(Some("Cluster c1 has spec.paused: true".into()))];
        let before = conditions(&[], &ready, Some(1), at(1));
        let said = conditions(&before, &paused, Some(1), at(2));
        assert!(condition::is_true(&said, ConditionType::Paused) && condition::is_true(&said, ConditionType::Ready));
        assert_eq!(conditions(&said, &paused, Some(2), at(3)), said);
        let other = [paused_condition(Some("the annotation cluster.x-k8s.io/paused is set".into()))];
        assert_ne!(conditions(&said, &other, Some(2), at(3)), said);
        let after = conditions(&said, &ready, Some(2), at(4));
        assert!(!condition::is_true(&after, ConditionType::Paused));
        assert_eq!(condition::find(&after, ConditionType::Ready).unwrap().observed_generation, Some(2));
    }

    #[test]
    fn a_failure_keeps_its_words_while_only_numbers_differ() {
        let failed = |words: &str| Desired::no(ConditionType::Ready, Reason::RefusedByHypervisor, words);
        let at = Timestamp::from_second(1).unwrap();
        let stored = conditions(&[], &[failed("path /run/domain-1-win-27t5c/agent.0 too long")], Some(1), at);
        for (words, kept) in [
            ("path /run/domain-2-win-27t5c/agent.0 too long", true),
            ("path /run/domain-17-win-0b7d2/agent.0 too long", true),
            ("path /run/domain-1-win-27t5c/agent.0 too short", false),
            ("path /run/domain-win-27t5c/agent.0 too long", false),
        ] {
            let said = in_stored_words(&stored, failed(words));
            assert_eq!(said.message != words, kept, "{words}");
        }
        let other = Desired { reason: Reason::NoCapacity, ..failed("path /run/domain-2-win-27t5c/agent.0 too long") };
        assert_eq!(in_stored_words(&stored, other.clone()), other, "another reason");
        let free = "UPID:pve:0003A2F1:1C: 3 MiB";
        assert!(is_same(free, "UPID:pve:0003BEE2:9F: 4 MiB") && !is_same("a", "b"));
    }

    #[test]
    fn every_condition_is_about_the_generation_that_was_seen() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let both = [Desired::yes(ConditionType::Ready, Reason::Provisioned), Desired::yes(ConditionType::NodeJoined, Reason::Joined)];
        let before = conditions(&[], &both, Some(1), at(1));
        for said in [&both[..1], &[]] {
            let after = conditions(&before, said, Some(2), at(2));
            assert!(after.iter().all(|c| c.observed_generation == Some(2) && c.last_transition_time.0 == at(1)), "{after:?}");
            assert_eq!(observed(&after, Some(2), Some(1)), Some(2));
        }
        let paused = conditions(&before, &[paused_condition(Some("x".into()))], Some(2), at(2));
        assert_eq!((observed(&paused, Some(2), Some(1)), observed(&[], Some(1), None)), (Some(1), None));
    }
}
