//! Drains a Node before its machine goes: cordon, evict, wait. In standalone pools; under Cluster API, core does it.
//!
//! The rules are those of `kubectl drain` and of core's Machine controller (`docs/design/cluster-api.md#draining`), with one addition: Windows pods
//! that hang in termination (kubernetes-sigs/cluster-api#12304) are deleted by force after a while.

mod messages;
mod pod;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

pub use self::pod::PodOnNode;
use self::pod::Stand;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachine;
use crate::api::pool::Drain;

/// On a machine: its Node is not drained (the annotation of core, on the WindowsMachine).
pub const EXCLUDE_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Grace period, in seconds, of pods on an unreachable Node: no kubelet is there to take longer.
const GRACE_UNREACHABLE: u32 = 1;
/// Shortest and longest time between two looks; core takes the longest always.
const POLL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));

/// When a drain ends though pods are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// After that time the machine goes with what is left; `None`: it waits forever.
    pub whole: Option<Duration>,
    /// So long after the end of its grace period, a pod that is still there is deleted by force; `None`: never.
    pub hung: Option<Duration>,
}

impl Limits {
    pub fn of(drain: &Drain) -> Self {
        let limit = |seconds: i64| (seconds > 0).then(|| Duration::from_secs(seconds.unsigned_abs()));
        Self { whole: limit(drain.timeout_seconds), hung: limit(drain.hung_pod_seconds) }
    }
}

/// A Node and what is on it.
pub struct ObservedNode<'a> {
    pub node: &'a Node,
    /// All pods on it; `None` before they are listed.
    pub pods: Option<&'a [PodOnNode]>,
    /// See [`since`].
    pub since: Timestamp,
    /// Since when each pod is seen to end, by UID and our own clock; those that are not in it were told just now.
    pub endings: &'a HashMap<String, Timestamp>,
    pub limits: Limits,
    /// See [`EXCLUDE_ANNOTATION`].
    pub excluded: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainStep {
    /// No further pod may come.
    Cordon,
    /// The pods on the Node must be known.
    List,
    /// These are asked to leave, all of them at every look: which ones may, the API server knows. `grace` in seconds goes before their own.
    Evict {
        pods: Vec<Victim>,
        grace: Option<u32>,
    },
    /// These have not ended in time and are deleted by force.
    Force(Vec<Victim>),
    Wait,
    /// Nothing is left that must be waited for.
    Done,
    /// The machine goes with what is left.
    GiveUp,
}

/// One pod, and no other one of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl std::fmt::Display for Victim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A step, what it leaves to wait for, and when to requeue if the Node does not change before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub step: DrainStep,
    pub left: Left,
    pub requeue_after: Duration,
}

/// What a drain waits for. Sorted, so that the same pods are the same words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// They run, and are asked to leave.
    pub evicted: Vec<Victim>,
    /// They end, within their grace period.
    pub ending: Vec<Victim>,
    /// Their grace period is over, and they are still there.
    pub hung: Vec<Victim>,
    /// They are left to finish by themselves, as their label says.
    pub completing: Vec<Victim>,
    /// No controller makes these again elsewhere.
    pub without_controller: Vec<Victim>,
    /// No pod is left, but these volumes are attached.
    pub volumes: Vec<String>,
}

/// The next step. Nothing is asked to leave before the Node is cordoned.
pub fn decide(s: &ObservedNode<'_>, now: Timestamp) -> Plan {
    let spent = elapsed(s.since, now);
    let plan = |step: DrainStep, left: Left| Plan { step, left, requeue_after: POLL.0 };
    if s.excluded || s.limits.whole.is_some_and(|whole| spent >= whole) {
        return plan(DrainStep::GiveUp, Left::default());
    }
    if s.node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true) {
        return plan(DrainStep::Cordon, Left::default());
    }
    let Some(pods) = s.pods else { return plan(DrainStep::List, Left::default()) };
    let unreachable = is_unreachable(s.node);
    let mut left = Left::default();
    let (mut force, mut next_hung, mut keeps_volumes) = (Vec::new(), None::<Duration>, false);
    for pod in pods {
        let told = pod.metadata.uid.as_ref().and_then(|uid| s.endings.get(uid)).copied().unwrap_or(now);
        let stand = pod::stand(pod, s.limits.hung, unreachable, elapsed(told, now));
        let Some(victim) = pod::victim(pod).filter(|_| stand != Stand::Stays) else {
            keeps_volumes |= pod::holds_volumes(pod);
            continue;
        };
        match stand {
            Stand::Stays => {}
            Stand::Runs => left.evicted.push(victim.clone()),
            Stand::Ends => left.ending.push(victim.clone()),
            Stand::Hangs { force_in } => {
                next_hung = [next_hung, force_in].into_iter().flatten().min();
                left.hung.push(victim.clone());
                if force_in.is_some_and(|after| after.is_zero()) {
                    force.push(victim.clone());
                }
            }
            Stand::Completes => left.completing.push(victim.clone()),
        }
        if stand != Stand::Completes && pod::is_without_controller(pod) {
            left.without_controller.push(victim);
        }
    }
    left.sort();
    force.sort();
    if left.is_empty() && !unreachable && !keeps_volumes {
        left.volumes = volumes(s.node);
    }
    let step = if !force.is_empty() {
        DrainStep::Force(force)
    } else if !left.evicted.is_empty() {
        DrainStep::Evict { pods: left.evicted.clone(), grace: unreachable.then_some(GRACE_UNREACHABLE) }
    } else if left.is_empty() {
        DrainStep::Done
    } else {
        DrainStep::Wait
    };
    let end = s.limits.whole.map(|whole| whole.saturating_sub(spent));
    let usual = (spent / 4).clamp(POLL.0, POLL.1);
    // A pod whose hour has come is not looked at before it has had time to go.
    let next = [end, next_hung.filter(|after| !after.is_zero())].into_iter().flatten().fold(usual, Duration::min);
    Plan { step, left, requeue_after: next }
}

impl Left {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn sort(&mut self) {
        for pods in [&mut self.evicted, &mut self.ending, &mut self.hung, &mut self.completing, &mut self.without_controller] {
            pods.sort();
        }
    }
}

/// What is reported while a drain lasts. `refused`: the answers of the API server to evictions that it refused.
pub fn conditions(s: &ObservedNode<'_>, left: &Left, refused: &BTreeMap<Victim, String>) -> [Desired; 2] {
    let words = messages::progress(s, left, refused);
    [
        Desired::yes(ConditionType::Deleting, Reason::DrainingNode).with_message(words.clone()),
        Desired::no(ConditionType::Ready, Reason::DrainingNode, words),
    ]
}

/// Whether its Node is not drained, as the annotation says.
pub fn is_excluded(object: &WindowsMachine) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(EXCLUDE_ANNOTATION))
}

/// Since when the Node of a machine is in the way of its removal, by our own clock.
pub fn since(object: &WindowsMachine, now: Timestamp) -> Timestamp {
    let noted = object.status.as_ref().and_then(|status| status.draining_since.as_ref());
    noted.map_or(now, |since| since.0)
}

/// Whether the time for the drain has passed: then the machine goes even if its Node cannot be reached.
pub fn is_over(object: &WindowsMachine, limits: &Limits, now: Timestamp) -> bool {
    is_excluded(object) || limits.whole.is_some_and(|whole| elapsed(since(object, now), now) >= whole)
}

/// Why a drain ends though pods may be left.
pub fn given_up(s: &ObservedNode<'_>) -> String {
    messages::given_up(s)
}

/// Its kubelet has not reported for a while: what is on it will not go by itself.
fn is_unreachable(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == "Ready" && c.status == "Unknown")
}

fn volumes(node: &Node) -> Vec<String> {
    let attached = node.status.as_ref().and_then(|s| s.volumes_attached.as_deref()).unwrap_or_default();
    let mut names: Vec<String> = attached.iter().map(|v| v.name.clone()).collect();
    names.sort();
    names
}

pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default()
}
