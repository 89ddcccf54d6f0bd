//! The state of one pool machine, from its WindowsMachine and its Machine.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::situation::{Failure, Member, Replace, State};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{DELETE_ANNOTATION, HEALTH_CHECK_SUCCEEDED, NODE_DELETED, NODE_READY, OWNER_REMEDIATED};
use crate::api::condition::{self, Blame, ConditionType, Reason, find};
use crate::api::machine::WindowsMachine;
use crate::api::pool::TEMPLATE_LABEL;
use crate::domain::identity::{chosen, is_provisioned};
use crate::domain::owner::NodeRequest;

/// The known facts about one machine.
pub struct Known<'a> {
    pub object: &'a WindowsMachine,
    /// The request of its Machine, or an equivalent request in a standalone pool.
    pub request: Option<&'a NodeRequest>,
    pub config: Option<&'a WindowsBootstrapConfig>,
    /// Hash of the pool's template.
    pub hash: &'a str,
    /// The removal of the machine was requested, whatever the caches show.
    pub removed: bool,
    /// The hypervisor does not answer or was deleted.
    pub unreachable: bool,
    /// The pool is standalone: no MachineHealthCheck replaces failed machines.
    pub standalone: bool,
    /// See [`Member::named`].
    pub named: bool,
    /// How many seconds a Node may stay not Ready.
    pub not_ready_seconds: Option<i64>,
    pub now: Timestamp,
}

pub fn member(k: &Known<'_>) -> Member {
    let meta = &k.object.metadata;
    let placed = k.object.spec.hypervisor_ref.as_ref().map(|r| r.name.clone());
    Member {
        name: meta.name.clone().unwrap_or_default(),
        created: crate::domain::age::created(meta).unwrap_or(Timestamp::UNIX_EPOCH),
        domain: chosen(k.object).or(placed),
        up_to_date: meta.labels.as_ref().and_then(|l| l.get(TEMPLATE_LABEL)).map(String::as_str) == Some(k.hash),
        state: state(k),
        failed: failure(k),
        given_up_at: given_up_at(k),
        delete_first: meta.annotations.as_ref().is_some_and(|a| a.contains_key(DELETE_ANNOTATION)) || k.request.is_some_and(|r| r.delete_first),
        named: k.named,
        build: k.request.and_then(build),
    }
}

fn state(k: &Known<'_>) -> State {
    if k.removed || k.object.metadata.deletion_timestamp.is_some() || k.request.is_some_and(|r| r.is_deleting) {
        return State::Leaving { lost: k.unreachable };
    }
    if let Some(ready) = find(told(k), NODE_READY).filter(|c| c.status == "True") {
        return State::Ready { since: ready.last_transition_time.0 };
    }
    match k.request.and_then(|r| r.node.as_ref()) {
        Some(_) => State::NotReady,
        _ if is_provisioned(k.object) => State::Starting,
        _ => State::Making { full: condition_of(k, ConditionType::Ready).is_some_and(|c| c.reason == Reason::NoCapacity) },
    }
}

/// The conditions of the Machine.
fn told<'a>(k: &Known<'a>) -> &'a [Condition] {
    k.request.map(|r| r.conditions.as_slice()).unwrap_or_default()
}

/// A condition of the WindowsMachine itself.
fn condition_of<'a>(k: &Known<'a>, type_: ConditionType) -> Option<&'a Condition> {
    find(k.object.status.as_ref().map(|s| s.conditions.as_slice())?, type_)
}

/// Why the machine counts as failed. If a MachineHealthCheck exists, it decides. A VM that was removed can only be replaced
/// (`docs/design/cluster-api.md#pool-machines`). A failure caused by the template counts against the template and is not retried automatically.
fn failure(k: &Known<'_>) -> Option<Failure> {
    let told = told(k);
    let remediated = find(told, OWNER_REMEDIATED).is_some_and(|c| c.status == "False");
    let failed = |condition: &Condition, replace| Some(Failure { why: condition.reason.clone(), replace });
    let unready = condition_of(k, ConditionType::Ready).filter(|c| c.status == "False");
    // Checked first: the template did not cause this failure.
    if let Some(ready) = unready.filter(|c| c.reason == Reason::VirtualMachineRemoved) {
        return failed(ready, if remediated { Replace::AtOnce } else { Replace::InBudget });
    }
    if remediated {
        let why = find(told, HEALTH_CHECK_SUCCEEDED).map_or("a MachineHealthCheck found it unhealthy", |c| c.reason.as_str());
        return Some(Failure { why: why.into(), replace: Replace::AtOnce });
    }
    if let Some(ready) = unready.filter(|c| !is_provisioned(k.object) && is_of_template(c)) {
        return failed(ready, Replace::NotHere);
    }
    let here = if k.standalone { Replace::InBudget } else { Replace::NotHere };
    if let Some(deleted) = find(told, NODE_READY).filter(|c| k.standalone && c.status == "False" && c.reason == NODE_DELETED) {
        return failed(deleted, here);
    }
    if let Some(ready) = find(told, NODE_READY).filter(|_| given_up_at(k).is_some_and(|at| at <= k.now)) {
        return failed(ready, here);
    }
    let joined = condition_of(k, ConditionType::NodeJoined).filter(|c| c.status == "False" && condition::problem(c).is_some());
    if let Some(joined) = joined {
        return failed(joined, here);
    }
    let data = k.config.and_then(|c| c.status.as_ref()).and_then(|s| find(&s.conditions, ConditionType::Ready));
    data.filter(|c| c.status == "False" && is_of_template(c)).and_then(|c| failed(c, Replace::NotHere))
}

/// When a machine whose Node is not Ready is given up. With Cluster API, a MachineHealthCheck decides that.
fn given_up_at(k: &Known<'_>) -> Option<Timestamp> {
    let seconds = k.not_ready_seconds.filter(|_| k.standalone)?;
    let since = find(told(k), NODE_READY).filter(|c| c.status != "True")?.last_transition_time.0;
    since.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Whether every other machine of the template would fail in the same way.
fn is_of_template(condition: &Condition) -> bool {
    Reason::from_name(&condition.reason).and_then(Reason::blame) == Some(Blame::Spec)
}

/// `10.0.20348.2700` as numbers.
fn build(request: &NodeRequest) -> Option<Vec<u32>> {
    let parts: Vec<u32> = request.kernel_version.as_ref()?.split(['.', ' ']).map_while(|part| part.parse().ok()).collect();
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::capi::Machine;
    use serde_json::{Value, json};

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn known(object: Value, machine: Value) -> Member {
        told(object, machine, false)
    }

    fn told(object: Value, machine: Value, standalone: bool) -> Member {
        let metadata = json!({"name": "m", "labels": {TEMPLATE_LABEL: "h"}, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let object: WindowsMachine = serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "WindowsMachine", "metadata": metadata, "spec": {"image": "w"}, "status": object}))
        .unwrap();
        let machine: Machine = serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "m"}, "spec": {}, "status": machine}))
        .unwrap();
        member(&Known {
            object: &object,
            request: Some(&NodeRequest::of_machine(&machine)),
            config: None,
            hash: "h",
            removed: false,
            unreachable: false,
            standalone,
            named: false,
            not_ready_seconds: Some(300),
            now: Timestamp::from_second(1_767_225_600 + 300).unwrap(),
        })
    }

    #[test]
    fn how_far_a_machine_is() {
        let provisioned = json!({"initialization": {"provisioned": true}});
        let at = jiff::Timestamp::from_second(1_767_225_600).unwrap();
        for (object, machine, state) in [
            (json!({}), json!({}), State::Making { full: false }),
            (json!({"conditions": [condition("Ready", "False", "NoCapacity")]}), json!({}), State::Making { full: true }),
            (provisioned.clone(), json!({}), State::Starting),
            (provisioned.clone(), json!({"nodeRef": {"name": "n"}}), State::NotReady),
            (provisioned, json!({"nodeRef": {"name": "n"}, "conditions": [condition("NodeReady", "True", "NodeReady")]}), State::Ready { since: at }),
        ] {
            assert_eq!(known(object, machine).state, state);
        }
    }

    #[test]
    fn who_failed_and_who_replaces_it() {
        let up = |conditions: Value| json!({"initialization": {"provisioned": true}, "conditions": conditions});
        for (object, machine, expected) in [
            (up(json!([condition("NodeJoined", "False", "Joining")])), json!({}), None),
            (up(json!([condition("NodeJoined", "False", "NodeNeverJoined")])), json!({}), Some(Replace::NotHere)),
            (up(json!([condition("Ready", "False", "VirtualMachineRemoved")])), json!({}), Some(Replace::InBudget)),
            (json!({"conditions": [condition("Ready", "False", "ImageMissing")]}), json!({}), Some(Replace::NotHere)),
            (json!({"conditions": [condition("Ready", "False", "HypervisorUnreachable")]}), json!({}), None),
            (
                up(json!([])),
                json!({"conditions": [condition("OwnerRemediated", "False", "W"), condition("HealthCheckSucceeded", "False", "UnhealthyNode")]}),
                Some(Replace::AtOnce),
            ),
            (
                up(json!([condition("Ready", "False", "VirtualMachineRemoved")])),
                json!({"conditions": [condition("OwnerRemediated", "False", "W")]}),
                Some(Replace::AtOnce),
            ),
        ] {
            assert_eq!(known(object, machine).failed.map(|f| f.replace), expected);
        }
    }

    /// Two VMs that are removed while they start do not prove that the template is broken.
    #[test]
    fn a_vm_that_was_removed_from_outside_does_not_speak_against_the_template() {
        let starting = |reason: &str| json!({"initialization": {"provisioned": true}, "conditions": [condition("Ready", "False", reason), condition("NodeJoined", "False", "NodeNeverJoined")]});
        for machine in [json!({}), json!({"conditions": [condition("OwnerRemediated", "False", "W")]})] {
            let removed = known(starting("VirtualMachineRemoved"), machine.clone());
            assert!(removed.failed.is_some() && !removed.failed_to_start(), "{removed:?}");
            assert!(known(starting("NodeNeverJoined"), machine).failed_to_start());
        }
    }

    #[test]
    fn a_standalone_pool_replaces_its_failed_machines_itself() {
        let up = |conditions: Value| json!({"initialization": {"provisioned": true}, "conditions": conditions});
        let silent = |since: &str| {
            let mut ready = condition("NodeReady", "Unknown", "NodeStatusUnknown");
            ready["lastTransitionTime"] = json!(since);
            json!({"nodeRef": {"name": "n"}, "conditions": [ready]})
        };
        let deleted = json!({"nodeRef": {"name": "n"}, "conditions": [condition("NodeReady", "False", "NodeDeleted")]});
        for (object, machine, expected) in [
            (up(json!([condition("NodeJoined", "False", "Joining")])), json!({}), None),
            (up(json!([condition("NodeJoined", "False", "NodeNeverJoined")])), json!({}), Some(Replace::InBudget)),
            (up(json!([condition("NodeJoined", "True", "Joined")])), deleted, Some(Replace::InBudget)),
            (up(json!([condition("NodeJoined", "True", "Joined")])), silent("2026-01-01T00:00:00Z"), Some(Replace::InBudget)),
            (up(json!([condition("NodeJoined", "True", "Joined")])), silent("2026-01-01T00:00:01Z"), None),
            (json!({"conditions": [condition("Ready", "False", "ImageMissing")]}), json!({}), Some(Replace::NotHere)),
        ] {
            assert_eq!(told(object, machine, true).failed.map(|f| f.replace), expected);
        }
    }

    #[test]
    fn the_build_of_windows() {
        assert_eq!(known(json!({}), json!({"nodeInfo": {"kernelVersion": "10.0.20348.2700"}})).build, Some(vec![10, 0, 20348, 2700]));
        assert_eq!(known(json!({}), json!({"nodeInfo": {"kernelVersion": ""}})).build, None);
    }
}
