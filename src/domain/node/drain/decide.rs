//! Decides the next step of a drain.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::limits::{Limits, elapsed};
use super::pod::{self, PodOnNode, Stand};
use super::step::{DrainStep, Left, Plan};

/// The grace period, in seconds, of pods on an unreachable Node: no kubelet would use a longer one.
const GRACE_UNREACHABLE: u32 = 1;
/// The shortest and longest time between two checks; core always uses the longest.
pub(super) const POLL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));

/// A Node, its pods, and the state of its drain.
pub struct ObservedNode<'a> {
    pub node: &'a Node,
    /// All pods on the Node; `None` before they are listed.
    pub pods: Option<&'a [PodOnNode]>,
    /// See [`since`](super::since).
    pub since: Timestamp,
    /// When each pod was first observed to terminate, by UID and our own clock. For pods that are not in the map, that is now.
    pub endings: &'a HashMap<String, Timestamp>,
    pub limits: Limits,
    /// See [`EXCLUDE_ANNOTATION`](super::EXCLUDE_ANNOTATION).
    pub excluded: bool,
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
