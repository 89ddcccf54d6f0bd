//! WindowsHypervisor: reports the listing of its VMs to users, and schedules the next listing.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::hypervisor::{Limits, WindowsHypervisor};
use crate::api::machine::WindowsMachine;
use crate::api::name::mebibytes;
use crate::domain::age::seconds;
use crate::domain::conditions::in_stored_words;
use crate::domain::decision::Decision;
use crate::domain::identity::{annotated, chosen, provider_id};
use crate::vm::DriverError;

/// The interval between descriptions of an endpoint that answers: permissions and capacity may change.
const DESCRIBE_SECONDS: i64 = 600;
/// The interval between descriptions of an endpoint that cannot run VMs as required: a person may be fixing it.
const UNFIT_SECONDS: i64 = 30;
/// The most leftovers that a condition names.
const LEFTOVERS: usize = 10;
/// The back-off after a failed listing: it starts at the first value and doubles each time, up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The report after the endpoint has answered and listed these leftovers. `unfit` states why it cannot run VMs as the object requires.
pub fn answered(object: &WindowsHypervisor, unfit: Option<&str>, leftovers: &[String], tick: Duration) -> Decision<()> {
    let ready = match unfit {
        Some(why) => Desired::no(ConditionType::Ready, Reason::HypervisorUnfit, why),
        None => Desired::yes(ConditionType::Ready, Reason::Reachable),
    };
    let decision =
        Decision::new(()).with_condition(Desired::yes(ConditionType::Reachable, Reason::Reachable)).with_condition(ready).requeue_after(tick);
    if !leftovers.is_empty() {
        let named: Vec<&str> = leftovers.iter().take(LEFTOVERS).map(String::as_str).collect();
        let more = if leftovers.len() > LEFTOVERS { format!(" and {} more", leftovers.len() - LEFTOVERS) } else { String::new() };
        let message = format!("belongs to no VM and is left alone: {}{more}", named.join("; "));
        return decision.with_condition(Desired::no(ConditionType::InventoryClean, Reason::LeftoversFound, message));
    }
    let known = object.status.as_ref().is_some_and(|s| condition::find(&s.conditions, ConditionType::InventoryClean).is_some());
    if known { decision.with_condition(Desired::yes(ConditionType::InventoryClean, Reason::NoLeftovers)) } else { decision }
}

/// Why machines may not use an endpoint that has answered: its report that a VM does not exist proves nothing.
pub fn distrust(object: &WindowsHypervisor, id: &str, lacks: &[String]) -> Option<DriverError> {
    let known = object.status.as_ref().and_then(|status| status.endpoint_id.as_deref());
    if let Some(known) = known.filter(|known| *known != id) {
        return Some(DriverError::EndpointChanged(format!(
            "the endpoint at this address is {id}, not {known}, on which the VMs were made: correct the address; if the old endpoint is gone for good, with every VM on it, remove status.endpointID of this object"
        )));
    }
    if lacks.is_empty() {
        return None;
    }
    Some(DriverError::Denied(format!("the credentials lack permissions: {}. Grant them to their user", lacks.join("; "))))
}

/// Whether the connection to an endpoint must be recreated, because it still uses an identity that a person has removed from the status.
pub fn is_to_forget(object: &WindowsHypervisor, error: &DriverError) -> bool {
    let is_known = object.status.as_ref().is_some_and(|status| status.endpoint_id.is_some());
    matches!(error, DriverError::EndpointChanged(_)) && !is_known
}

/// The report after the endpoint has failed, `failures` times in a row (1 is the first).
pub fn failed(object: &WindowsHypervisor, error: &DriverError, failures: u32) -> Decision<()> {
    let stored = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let no = |type_| in_stored_words(stored, Desired::no(type_, reason(error), error.to_string()));
    let after = BACKOFF.0.saturating_mul(1 << failures.min(10).saturating_sub(1)).min(BACKOFF.1);
    Decision::new(()).with_condition(no(ConditionType::Reachable)).with_condition(no(ConditionType::Ready)).requeue_after(after)
}

/// The reason that a hypervisor reports for a failed call.
pub fn reason(error: &DriverError) -> Reason {
    match error {
        DriverError::Auth(_) => Reason::Unauthorized,
        DriverError::Denied(_) => Reason::HypervisorPermissionsMissing,
        DriverError::Certificate(_) => Reason::CertificateRejected,
        DriverError::EndpointChanged(_) => Reason::EndpointChanged,
        DriverError::Missing { .. } => Reason::PlacementMissing,
        DriverError::Invalid(_) => Reason::InvalidSpec,
        _ => Reason::HypervisorUnreachable,
    }
}

/// Why the endpoint could not run VMs as the object requires, according to its last description.
pub fn unfit(object: &WindowsHypervisor) -> Option<&str> {
    let ready = condition::find(&object.status.as_ref()?.conditions, ConditionType::Ready)?;
    (ready.reason == Reason::HypervisorUnfit.as_str()).then_some(&ready.message)
}

/// Whether the endpoint must be described again: it was not known to answer, or its last admission is too old.
pub fn must_describe(object: &WindowsHypervisor, admitted: Option<Timestamp>, now: Timestamp) -> bool {
    let is_known = object.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, ConditionType::Reachable) && s.version.is_some());
    let period = if unfit(object).is_some() { UNFIT_SECONDS } else { DESCRIBE_SECONDS };
    !is_known || admitted.is_none_or(|at| seconds(at, now) >= period)
}

/// Whether the limits of a hypervisor leave room for a machine that has chosen it. `machines` have chosen it too. Machines with a VM count
/// first, then the oldest; so of several machines that come at once, only as many get a VM as fit. `unreadable` are machines
/// that were adopted for it too: only their number is known.
pub fn room<'a>(
    limits: Option<&Limits>,
    machines: impl Iterator<Item = &'a WindowsMachine>,
    unreadable: &[ObjectMeta],
    object: &WindowsMachine,
) -> Result<(), String> {
    let Some(limits) = limits else { return Ok(()) };
    if let (Some(first), true) = (unreadable.first(), limits.cpus.is_some() || limits.memory.is_some()) {
        let name = first.name.as_deref().unwrap_or_default();
        return Err(format!("WindowsMachine {name} cannot be read, so what spec.limits leaves is not known: correct that machine"));
    }
    let turn = |machine: &WindowsMachine| {
        (provider_id(machine).is_none(), machine.metadata.creation_timestamp.as_ref().map(|time| time.0), machine.metadata.uid.clone())
    };
    let mine = turn(object);
    let there = i64::try_from(unreadable.len()).unwrap_or(i64::MAX);
    let (mut count, mut cpus, mut memory) =
        (there.saturating_add(1), i64::from(object.spec.cpus), mebibytes(&object.spec.memory).unwrap_or_default());
    for other in machines.filter(|other| turn(other) < mine) {
        count += 1;
        cpus += i64::from(other.spec.cpus);
        memory += mebibytes(&other.spec.memory).unwrap_or_default();
    }
    let most_memory = limits.memory.as_deref().and_then(|text| mebibytes(text).ok());
    let over = |field: &str, asked: i64, limit: Option<i64>| {
        limit.filter(|limit| asked > *limit).map(|limit| {
            format!("with this machine it would have {asked} {field}, and spec.limits allows {limit}: remove machines, raise the limit, or use another hypervisor")
        })
    };
    let mib = |memory: u64| i64::try_from(memory).unwrap_or(i64::MAX);
    let refusal = over("machines", count, limits.machines)
        .or_else(|| over("CPUs", cpus, limits.cpus))
        .or_else(|| over("MiB of memory", mib(memory), most_memory.map(mib)));
    refusal.map_or(Ok(()), Err)
}

/// Whether a machine has, or may have, a VM on this hypervisor.
pub fn is_used_by(object: &WindowsHypervisor, machine: &WindowsMachine) -> bool {
    chosen(machine).as_deref() == object.metadata.name.as_deref()
}

/// Like [`is_used_by`] for a machine with readable metadata only: its provider ID may name any hypervisor, unless it was adopted for another one.
pub fn may_be_used_by(object: &WindowsHypervisor, machine: &ObjectMeta) -> bool {
    annotated(machine).is_none_or(|name| Some(name) == object.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::VmUuid;
    use crate::vm::Thing;
    use serde_json::json;

    fn hypervisor(status: serde_json::Value) -> WindowsHypervisor {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": "h"}, "spec": {}, "status": status}))
        .unwrap()
    }

    fn machine(uid: &str, made: bool, second: i64) -> WindowsMachine {
        let id = made.then(|| format!("windows://h/{}", VmUuid::of(uid)));
        let created = Timestamp::from_second(second).unwrap().to_string();
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": created},
            "spec": {"image": "w", "cpus": 4, "memory": "8Gi", "providerID": id}}))
        .unwrap()
    }

    #[test]
    fn of_eight_machines_that_come_at_once_two_fit_into_two_places() {
        let machines: Vec<WindowsMachine> = (0..8).map(|n| machine(&format!("m{n}"), false, 8 - n)).collect();
        let admitted = |limits: &Limits| {
            let fits = machines.iter().filter(|object| room(Some(limits), machines.iter(), &[], object).is_ok());
            fits.map(|object| object.metadata.name.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(admitted(&Limits { machines: Some(2), ..Limits::default() }), ["m6", "m7"], "the oldest");
        assert_eq!(admitted(&Limits { cpus: Some(11), ..Limits::default() }), ["m6", "m7"]);
        assert_eq!(admitted(&Limits { memory: Some("16Gi".into()), ..Limits::default() }), ["m6", "m7"]);
        assert_eq!(admitted(&Limits { changes: Some(1), ..Limits::default() }).len(), 8);
        let (there, new) = (machine("there", true, 99), machine("new", false, 1));
        let one = Limits { machines: Some(1), ..Limits::default() };
        let error = room(Some(&one), [&there, &new].into_iter(), &[], &new).unwrap_err();
        assert!(error.contains("2 machines") && error.contains("spec.limits allows 1"), "{error}");
        assert_eq!(room(Some(&one), [&there, &new].into_iter(), &[], &there), Ok(()), "what is there stays");
        assert_eq!(room(None, machines.iter(), &[], &machines[0]), Ok(()));
        let unreadable = [there.metadata];
        let error = room(Some(&one), [&new].into_iter(), &unreadable, &new).unwrap_err();
        assert!(error.contains("2 machines"), "{error}");
        let error = room(Some(&Limits { cpus: Some(99), ..Limits::default() }), [&new].into_iter(), &unreadable, &new).unwrap_err();
        assert!(error.contains("WindowsMachine there cannot be read"), "{error}");
    }

    #[test]
    fn only_the_endpoint_of_the_first_contact_with_all_permissions_is_believed() {
        let known = hypervisor(json!({"endpointID": "a"}));
        assert_eq!((distrust(&hypervisor(json!({})), "a", &[]), distrust(&known, "a", &[])), (None, None));
        assert!(
            matches!(distrust(&known, "b", &[]), Some(DriverError::EndpointChanged(text)) if text.contains("is b, not a") && text.contains("status.endpointID"))
        );
        assert!(matches!(distrust(&known, "a", &["domain:write".into()]), Some(DriverError::Denied(text)) if text.contains("domain:write")));
    }

    #[test]
    fn a_connection_goes_by_an_identity_until_a_person_removes_it() {
        let changed = DriverError::EndpointChanged("b, and had a before".into());
        for (status, error, is_forgotten) in
            [(json!({"endpointID": "a"}), &changed, false), (json!({}), &changed, true), (json!({}), &DriverError::Unreachable("cut".into()), false)]
        {
            assert_eq!(is_to_forget(&hypervisor(status.clone()), error), is_forgotten, "{status} {error}");
        }
    }

    #[test]
    fn an_endpoint_is_described_at_first_and_every_ten_minutes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let condition =
            json!({"type": "Reachable", "status": "True", "reason": "Reachable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let known = hypervisor(json!({"version": "1", "conditions": [condition]}));
        assert!(must_describe(&hypervisor(json!({})), Some(at(0)), at(1)) && must_describe(&known, None, at(1)));
        assert!(!must_describe(&known, Some(at(0)), at(599)) && must_describe(&known, Some(at(0)), at(600)));
    }

    #[test]
    fn an_endpoint_that_runs_no_vms_as_it_should_is_reachable_and_not_ready_until_it_is_fixed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let said = answered(&hypervisor(json!({})), Some("no KVM"), &[], Duration::from_secs(1)).conditions;
        let said: Vec<_> = said.into_iter().map(|c| (c.type_, c.status, c.reason, c.message)).collect();
        assert_eq!(
            said,
            [
                (ConditionType::Reachable, Some(true), Reason::Reachable, String::new()),
                (ConditionType::Ready, Some(false), Reason::HypervisorUnfit, "no KVM".into())
            ]
        );
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "no KVM", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let conditions = [condition("Reachable", "True", "Reachable"), condition("Ready", "False", "HypervisorUnfit")];
        let known = hypervisor(json!({"version": "1", "conditions": conditions}));
        assert_eq!((unfit(&known), unfit(&hypervisor(json!({})))), (Some("no KVM"), None));
        assert!(!must_describe(&known, Some(at(0)), at(29)) && must_describe(&known, Some(at(0)), at(30)));
    }

    #[test]
    fn leftovers_are_named_until_they_are_gone() {
        let second = Duration::from_secs(1);
        let leftovers: Vec<String> = (0..12).map(|n| format!("volume {n}")).collect();
        let said = |object: &WindowsHypervisor, leftovers: &[String]| {
            let decision = answered(object, None, leftovers, second);
            decision.conditions.into_iter().find(|c| c.type_ == ConditionType::InventoryClean).map(|c| (c.status, c.reason, c.message))
        };
        let new = hypervisor(json!({}));
        assert_eq!(said(&new, &[]), None, "no word about what never was");
        let (status, reason, message) = said(&new, &leftovers).unwrap();
        assert_eq!((status, reason), (Some(false), Reason::LeftoversFound));
        assert!(message.contains("volume 9") && !message.contains("volume 10") && message.contains("2 more"), "{message}");
        let condition = json!({"type": "InventoryClean", "status": "False", "reason": "LeftoversFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        assert_eq!(said(&hypervisor(json!({"conditions": [condition]})), &[]).unwrap().1, Reason::NoLeftovers);
    }

    #[test]
    fn an_endpoint_that_fails_is_asked_less_and_less() {
        let error = DriverError::Unreachable("cut".into());
        let new = hypervisor(json!({}));
        let waits: Vec<u64> = (1..8).map(|n| failed(&new, &error, n).requeue_after.unwrap().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 15, 15, 15]);
        assert_eq!(failed(&new, &error, u32::MAX).requeue_after.unwrap().as_secs(), 15);
    }

    #[test]
    fn what_fails_with_another_number_each_time_is_no_change() {
        let failure = |n: u32| DriverError::Unreachable(format!("request {n} was cut"));
        let known = failed(&hypervisor(json!({})), &failure(1), 1).conditions;
        let stored: Vec<serde_json::Value> = (known.iter())
            .map(|c| {
                json!({"type": c.type_.as_str(), "status": "False", "reason": c.reason.as_str(), "message": c.message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        assert_eq!(failed(&hypervisor(json!({"conditions": stored})), &failure(2), 2).conditions, known);
    }

    #[test]
    fn each_class_of_error_has_its_reason() {
        for (error, reason) in [
            (DriverError::Auth("x".into()), Reason::Unauthorized),
            (DriverError::Denied("x".into()), Reason::HypervisorPermissionsMissing),
            (DriverError::Certificate("x".into()), Reason::CertificateRejected),
            (DriverError::EndpointChanged("x".into()), Reason::EndpointChanged),
            (DriverError::Missing { thing: Thing::Placement, text: "x".into() }, Reason::PlacementMissing),
            (DriverError::Invalid("x".into()), Reason::InvalidSpec),
            (DriverError::Unreachable("x".into()), Reason::HypervisorUnreachable),
            (DriverError::Transient("x".into()), Reason::HypervisorUnreachable),
        ] {
            let decision = failed(&hypervisor(json!({})), &error, 1);
            assert!(decision.conditions.iter().all(|c| c.reason == reason && c.status == Some(false)), "{decision:?}");
        }
    }
}
