//! The join of a machine's Node, and its deadline.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::guest;
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachine;
use crate::diagnosis;
use crate::domain::age::seconds;
use crate::domain::decision::Decision;
use crate::domain::owner::Owner;
use crate::vm::Present;

/// In the message of NodeJoined, precedes the problem of a Node that has joined and is not Ready.
const NOT_READY: &str = "; it is not Ready: ";

/// Reports the progress of the join. Ready stays true while the node may still join, since MachineHealthCheck counts from its last change.
/// Once the guest has given up, Ready is false, which a MachineHealthCheck can see (`InfrastructureReady` of the Machine). A finding of the
/// diagnosis changes only the message, never a status: an intermittent cause must not restart a timeout.
pub(super) fn progress<S>(object: &WindowsMachine, owner: &Owner, vm: &Present, decision: Decision<S>, now: Timestamp) -> Decision<S> {
    let condition = |reason, message: String| Desired::no(ConditionType::NodeJoined, reason, message);
    let node = owner.request().and_then(|owner| Some((owner, owner.node.as_ref()?)));
    let given_up = vm.report.as_ref().filter(|report| report.is_final_failure());
    if let (None, Some(report)) = (node, given_up) {
        let (why, message) = guest::failure(report);
        return decision.with_condition(condition(why, message.clone())).with_condition(Desired::no(ConditionType::Ready, why, message));
    }
    let decision = decision.with_condition(Desired::yes(ConditionType::Ready, Reason::Provisioned));
    if let Some((owner, node)) = node {
        let ready = diagnosis::of_node_ready(&owner.conditions, node, now);
        let trouble = ready.sentence().map(|why| format!("{NOT_READY}{why}")).unwrap_or_default();
        let joined = Desired::yes(ConditionType::NodeJoined, Reason::Joined).with_message(format!("Node {node}{trouble}"));
        return Decision { requeue_after: ready.next, ..decision.with_condition(joined) };
    }
    let status = object.status.as_ref();
    let last = guest::told(status, vm.report.as_ref(), now);
    let symptoms = diagnosis::of_guest(object, last.as_ref(), now);
    let trouble = symptoms.sentence();
    let deadline = object.spec.join_deadline_seconds;
    let left = status.and_then(|s| s.powered_on_at.as_ref()).map_or(deadline, |since| deadline - seconds(since.0, now));
    if left > 0 {
        let trouble = trouble.map(|why| format!(": {why}")).unwrap_or_default();
        let joining = condition(Reason::Joining, format!("the VM runs; its Node has not appeared yet{trouble}"));
        let left = Duration::from_secs(left.unsigned_abs());
        return decision.with_condition(joining).requeue_after(symptoms.next.map_or(left, |next| next.min(left)));
    }
    let said = last.map(|l| format!("; the guest's last word: {} {} ({}): {}", l.item, l.state, l.code, l.message)).unwrap_or_default();
    let trouble = trouble.unwrap_or_else(|| r"Look at the VM's console and at C:\ProgramData\capw\bootstrap.log".into());
    let never = format!("no Node has appeared {deadline} s after power on{said}. {trouble}; a MachineHealthCheck replaces such machines");
    Decision { requeue_after: symptoms.next, ..decision.with_condition(condition(Reason::NodeNeverJoined, never)) }
}

/// Why the Node of a machine is not Ready, from its condition NodeJoined.
pub fn node_trouble(joined: &Condition) -> Option<&str> {
    joined.message.split_once(NOT_READY).map(|(_, why)| why)
}

/// Whether the next report is that no Node will appear. It includes the guest's last message, which must not be outdated.
pub fn is_given_up(object: &WindowsMachine, now: Timestamp) -> bool {
    let Some(status) = &object.status else { return false };
    let joining = condition::find(&status.conditions, ConditionType::NodeJoined).is_some_and(|c| c.reason == Reason::Joining);
    joining && status.powered_on_at.as_ref().is_some_and(|since| seconds(since.0, now) >= object.spec.join_deadline_seconds)
}
