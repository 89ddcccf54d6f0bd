//! The messages of a drain. The same state gives the same text in every pass, because each change is a write.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use jiff::Timestamp;

use super::decide::ObservedNode;
use super::limits::EXCLUDE_ANNOTATION;
use super::step::{Left, Victim};
use crate::api::condition::{ConditionType, Desired, Reason};

/// The most names in one list; for further names, the message has only the number.
const NAMED: usize = 3;
/// The most different refusals in a message.
const REFUSALS: usize = 5;

/// Returns the conditions during a drain. `refused`: the API server's answers to refused evictions.
pub fn conditions(s: &ObservedNode<'_>, left: &Left, refused: &BTreeMap<Victim, String>) -> [Desired; 2] {
    let words = progress(s, left, refused);
    [
        Desired::yes(ConditionType::Deleting, Reason::DrainingNode).with_message(words.clone()),
        Desired::no(ConditionType::Ready, Reason::DrainingNode, words),
    ]
}

fn progress(s: &ObservedNode<'_>, left: &Left, refused: &BTreeMap<Victim, String>) -> String {
    let mut parts = Vec::new();
    let mut refusals: BTreeMap<&str, Vec<&Victim>> = BTreeMap::new();
    for (pod, why) in refused {
        refusals.entry(why).or_default().push(pod);
    }
    for (why, pods) in refusals.iter().take(REFUSALS) {
        parts.push(format!("{} may not be evicted yet: {}", pods_named(pods), why.trim_end_matches('.')));
    }
    if let Some(more) = refusals.len().checked_sub(REFUSALS).filter(|more| *more > 0) {
        parts.push(format!("{more} other refusals"));
    }
    let ending: Vec<&Victim> = left.evicted.iter().filter(|pod| !refused.contains_key(pod)).chain(&left.ending).collect();
    if !ending.is_empty() {
        parts.push(format!("{} {} ending", pods_named(&ending), are(ending.len())));
    }
    if !left.hung.is_empty() {
        let (pods, are) = (pods_named(&left.hung), are(left.hung.len()));
        parts.push(match s.limits.hung {
            Some(limit) => format!("{pods} {are} still there after the grace period, and deleted by force {} s after its end", limit.as_secs()),
            None => format!("{pods} {are} still there after the grace period: look at the kubelet and at containerd of the Node"),
        });
    }
    if !left.completing.is_empty() {
        parts.push(format!("{} {} left to complete", pods_named(&left.completing), are(left.completing.len())));
    }
    if !left.without_controller.is_empty() {
        parts.push(format!("no controller makes {} again", pods_named(&left.without_controller)));
    }
    if !left.volumes.is_empty() {
        parts.push(format!("volumes are still attached: {}", named(&left.volumes)));
    }
    if let Some(whole) = s.limits.whole {
        parts.push(format!("the machine goes at {} whatever is left", at(s.since, whole)));
    }
    let node = s.node.metadata.name.as_deref().unwrap_or_default();
    format!("Node {node} is being drained since {}: {}", at(s.since, Duration::ZERO), parts.join("; "))
}

/// Returns why a drain ends although pods may be left.
pub fn given_up(s: &ObservedNode<'_>) -> String {
    let node = s.node.metadata.name.as_deref().unwrap_or_default();
    match s.limits.whole {
        _ if s.excluded => format!("Node {node} is not drained: the machine has the annotation {EXCLUDE_ANNOTATION}"),
        Some(whole) => {
            format!("Node {node} goes with the pods that are left: drain.timeoutSeconds of the pool, {} s, have passed", whole.as_secs())
        }
        None => format!("Node {node} goes with the pods that are left"),
    }
}

/// `pod a/b`, `pods a/b, a/c` or `5 pods (a/b, a/c, a/d and 2 more)`.
fn pods_named<T: Display>(pods: &[T]) -> String {
    match pods.len() {
        1 => format!("pod {}", named(pods)),
        2 | 3 => format!("pods {}", named(pods)),
        many => format!("{many} pods ({})", named(pods)),
    }
}

fn named<T: Display>(all: &[T]) -> String {
    let first: Vec<String> = all.iter().take(NAMED).map(T::to_string).collect();
    match all.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// Formats a time in whole seconds, as the API server does.
fn at(since: Timestamp, after: Duration) -> String {
    let second = since.as_second().saturating_add(i64::try_from(after.as_secs()).unwrap_or(i64::MAX));
    Timestamp::from_second(second).map(|t| t.to_string()).unwrap_or_default()
}
