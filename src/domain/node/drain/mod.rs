//! Drains a Node before its machine is removed: cordon, evict, wait. In standalone pools only; under Cluster API, core does it.
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

/// An annotation of core, on the WindowsMachine: its Node is not drained.
pub const EXCLUDE_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// The grace period, in seconds, of pods on an unreachable Node: no kubelet would use a longer one.
const GRACE_UNREACHABLE: u32 = 1;
/// The shortest and longest time between two checks; core always uses the longest.
const POLL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));

/// When a drain ends although pods are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time after which the machine is removed although pods are left; `None`: never.
    pub whole: Option<Duration>,
    /// The time from the end of a pod's grace period until the pod is deleted by force; `None`: never.
    pub hung: Option<Duration>,
}

impl Limits {
    pub fn of(drain: &Drain) -> Self {
        let limit = |seconds: i64| (seconds > 0).then(|| Duration::from_secs(seconds.unsigned_abs()));
        Self { whole: limit(drain.timeout_seconds), hung: limit(drain.hung_pod_seconds) }
    }
}

/// A Node, its pods, and the state of its drain.
pub struct ObservedNode<'a> {
    pub node: &'a Node,
    /// All pods on the Node; `None` before they are listed.
    pub pods: Option<&'a [PodOnNode]>,
    /// See [`since`].
    pub since: Timestamp,
    /// When each pod was first observed to terminate, by UID and our own clock. For pods that are not in the map, that is now.
    pub endings: &'a HashMap<String, Timestamp>,
    pub limits: Limits,
    /// See [`EXCLUDE_ANNOTATION`].
    pub excluded: bool,
}

/// The next step of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainStep {
    /// Cordon the Node, so that it gets no further pods.
    Cordon,
    /// List the pods on the Node.
    List,
    /// Evict these pods, all of them in every pass: the API server knows which may be evicted. `grace`, in seconds, overrides their own.
    Evict {
        pods: Vec<Victim>,
        grace: Option<u32>,
    },
    /// Delete these pods by force, because they have not ended in time.
    Force(Vec<Victim>),
    Wait,
    /// The drain is complete: no pod or volume is left to wait for.
    Done,
    /// The machine is removed with what is left.
    GiveUp,
}

/// One pod, identified by its UID too.
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

/// A step, what is left to wait for, and when to requeue if the Node does not change before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub step: DrainStep,
    pub left: Left,
    pub requeue_after: Duration,
}

/// The pods and volumes that a drain waits for. Sorted, so that the same pods give the same message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The running pods, which are evicted.
    pub evicted: Vec<Victim>,
    /// The pods that terminate within their grace period.
    pub ending: Vec<Victim>,
    /// The pods that still exist after their grace period.
    pub hung: Vec<Victim>,
    /// The pods that may finish, as their label requires.
    pub completing: Vec<Victim>,
    /// The pods that no controller recreates elsewhere.
    pub without_controller: Vec<Victim>,
    /// The volumes that are still attached although no pod is left.
    pub volumes: Vec<String>,
}

/// Returns the next step. No pod is evicted before the Node is cordoned.
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
    // A pod that is deleted by force now gets time to end before the next check.
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

/// Returns the conditions during a drain. `refused`: the API server's answers to refused evictions.
pub fn conditions(s: &ObservedNode<'_>, left: &Left, refused: &BTreeMap<Victim, String>) -> [Desired; 2] {
    let words = messages::progress(s, left, refused);
    [
        Desired::yes(ConditionType::Deleting, Reason::DrainingNode).with_message(words.clone()),
        Desired::no(ConditionType::Ready, Reason::DrainingNode, words),
    ]
}

/// Whether the annotation excludes the machine's Node from draining.
pub fn is_excluded(object: &WindowsMachine) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(EXCLUDE_ANNOTATION))
}

/// Returns when the Node of a machine began to delay its removal, by our own clock.
pub fn since(object: &WindowsMachine, now: Timestamp) -> Timestamp {
    let noted = object.status.as_ref().and_then(|status| status.draining_since.as_ref());
    noted.map_or(now, |since| since.0)
}

/// Whether the time for the drain has passed: then the machine is removed even if its Node cannot be reached.
pub fn is_over(object: &WindowsMachine, limits: &Limits, now: Timestamp) -> bool {
    is_excluded(object) || limits.whole.is_some_and(|whole| elapsed(since(object, now), now) >= whole)
}

/// Returns why a drain ends although pods may be left.
pub fn given_up(s: &ObservedNode<'_>) -> String {
    messages::given_up(s)
}

/// Whether the kubelet has not reported for a while: then its pods do not end without help.
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
