//! Interprets a failed call to the hypervisor for a machine.

use std::time::Duration;

use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachine;
use crate::domain::conditions::in_stored_words;
use crate::domain::decision::Decision;
use crate::domain::identity::is_provisioned;
use crate::vm::{DriverError, Thing};

/// A fault that a person can fix on the hypervisor (an image, room) is checked again after this time.
pub const RECHECK: Duration = Duration::from_secs(15);

/// The reaction to a failed call.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterFailure {
    /// Report the failure: a person must fix it.
    Report(Decision<()>),
    /// Try again after this time.
    TryAgain(Duration),
    /// Try again with back-off: the failure passes automatically.
    BackOff,
    /// Try again with back-off, and report these conditions: the failure has lasted too long.
    BackOffAndReport(Vec<Desired>),
}

/// The reason that a machine reports for a failed call. `None` if the failure passes automatically: it is reported only if it lasts
/// ([`Streak`](super::streak::Streak)).
pub fn reason(error: &DriverError) -> Option<Reason> {
    let why = match error {
        DriverError::Missing { thing: Thing::Image, .. } => Reason::ImageMissing,
        DriverError::Missing { thing: Thing::Network, .. } => Reason::NetworkMissing,
        DriverError::Missing { thing: Thing::Placement, .. } => Reason::PlacementMissing,
        DriverError::Conflict(_) => Reason::ForeignVirtualMachine,
        DriverError::Auth(_) => Reason::Unauthorized,
        DriverError::Denied(_) => Reason::HypervisorPermissionsMissing,
        DriverError::Certificate(_) => Reason::CertificateRejected,
        DriverError::EndpointChanged(_) => Reason::EndpointChanged,
        DriverError::Capacity(_) => Reason::NoCapacity,
        DriverError::Invalid(_) => Reason::RefusedByHypervisor,
        DriverError::Unreachable(_) => Reason::HypervisorUnreachable,
        DriverError::Busy { .. } | DriverError::Transient(_) | DriverError::Unknown(_) => return None,
    };
    Some(why)
}

pub fn after(object: &WindowsMachine, hypervisor: &str, error: &DriverError) -> AfterFailure {
    let Some(why) = reason(error) else {
        return if let DriverError::Busy { after } = error { AfterFailure::TryAgain(*after) } else { AfterFailure::BackOff };
    };
    let conditions = conditions(object, why, format!("WindowsHypervisor {hypervisor}: {error}"));
    AfterFailure::Report(Decision { step: (), conditions, requeue_after: Some(RECHECK) })
}

/// The conditions, with the hypervisor's message, for a fault that should have passed automatically but has not.
pub fn lasting(object: &WindowsMachine, hypervisor: &str, words: &str) -> Vec<Desired> {
    conditions(object, Reason::HypervisorFailing, format!("WindowsHypervisor {hypervisor}, time after time: {words}"))
}

fn conditions(object: &WindowsMachine, why: Reason, message: String) -> Vec<Desired> {
    let said = match (is_provisioned(object), object.metadata.deletion_timestamp.is_some()) {
        (_, true) => vec![Desired::no(ConditionType::Ready, why, message.clone()), Desired::yes(ConditionType::Deleting, why).with_message(message)],
        (true, _) => vec![Desired::unknown(ConditionType::VirtualMachineReady, why, message)],
        (false, _) => vec![Desired::no(ConditionType::Ready, why, message)],
    };
    // The remaining room in the message is useful to users, so the message is not replaced by the stored one.
    if why == Reason::NoCapacity {
        return said;
    }
    let stored = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    said.into_iter().map(|said| in_stored_words(stored, said)).collect()
}

/// The bootstrap Secret is missing or invalid.
pub fn secret_unusable(message: String) -> Decision<()> {
    Decision::new(()).with_condition(Desired::no(ConditionType::Ready, Reason::BootstrapSecretMissing, message)).requeue_after(RECHECK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(provisioned: bool, deleting: bool) -> WindowsMachine {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "m", "deletionTimestamp": deleted}, "spec": {"image": "w"},
            "status": {"initialization": {"provisioned": provisioned}}}))
        .unwrap()
    }

    fn reported(object: &WindowsMachine, error: &DriverError) -> Vec<(String, Option<bool>, String)> {
        match after(object, "lab", error) {
            AfterFailure::Report(decision) => {
                decision.conditions.into_iter().map(|c| (c.type_.to_string(), c.status, c.reason.to_string())).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_class_of_error_has_its_reason() {
        let text = || "x".to_owned();
        for (error, reason) in [
            (DriverError::Missing { thing: Thing::Image, text: text() }, Reason::ImageMissing),
            (DriverError::Missing { thing: Thing::Network, text: text() }, Reason::NetworkMissing),
            (DriverError::Missing { thing: Thing::Placement, text: text() }, Reason::PlacementMissing),
            (DriverError::Denied(text()), Reason::HypervisorPermissionsMissing),
            (DriverError::Certificate(text()), Reason::CertificateRejected),
            (DriverError::EndpointChanged(text()), Reason::EndpointChanged),
            (DriverError::Conflict(text()), Reason::ForeignVirtualMachine),
            (DriverError::Auth(text()), Reason::Unauthorized),
            (DriverError::Capacity(text()), Reason::NoCapacity),
            (DriverError::Invalid(text()), Reason::RefusedByHypervisor),
            (DriverError::Unreachable(text()), Reason::HypervisorUnreachable),
        ] {
            assert_eq!(reported(&machine(false, false), &error), [("Ready".to_owned(), Some(false), reason.to_string())]);
        }
    }

    /// libvirt puts the number of each try to start a VM into its message. A status that changed with it triggered the next try at once.
    #[test]
    fn a_number_that_is_new_at_each_try_is_no_news() {
        let words = |n: u32| format!("socket path /run/domain-{n}-win-1/agent.0 too long");
        for (first, then, kept) in [
            (DriverError::Invalid(words(1)), DriverError::Invalid(words(2)), true),
            (DriverError::Invalid(words(1)), DriverError::Invalid("no such CPU model".into()), false),
            (DriverError::Capacity("3 GiB are free".into()), DriverError::Capacity("5 GiB are free".into()), false),
        ] {
            let mut object = machine(false, false);
            let said = |object: &WindowsMachine, error: &DriverError| match after(object, "lab", error) {
                AfterFailure::Report(decision) => decision.conditions,
                other => panic!("{other:?}"),
            };
            let before = said(&object, &first);
            let stored: Vec<_> = (before.iter())
                .map(|c| {
                    json!({"type": c.type_.as_str(), "status": "False", "reason": c.reason.as_str(), "message": c.message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
                })
                .collect();
            object.status.as_mut().unwrap().conditions = serde_json::from_value(json!(stored)).unwrap();
            assert_eq!(said(&object, &then) == before, kept, "{then:?}");
        }
    }

    #[test]
    fn what_passes_by_itself_is_not_reported_at_once() {
        let (object, minute) = (machine(false, false), Duration::from_secs(60));
        assert_eq!(after(&object, "lab", &DriverError::Busy { after: minute }), AfterFailure::TryAgain(minute));
        for error in [DriverError::Transient("x".into()), DriverError::Unknown("x".into())] {
            assert_eq!(after(&object, "lab", &error), AfterFailure::BackOff);
        }
    }

    #[test]
    fn what_does_not_pass_is_said_where_a_failure_is() {
        for (object, type_) in [(machine(false, false), ConditionType::Ready), (machine(true, false), ConditionType::VirtualMachineReady)] {
            let said = lasting(&object, "lab", "no socket");
            assert_eq!((said.len(), said[0].type_, said[0].reason), (1, type_, Reason::HypervisorFailing));
            assert!(said[0].message.contains("WindowsHypervisor lab") && said[0].message.ends_with("no socket"), "{}", said[0].message);
        }
    }

    #[test]
    fn a_machine_that_runs_stays_ready_and_one_that_is_deleted_says_why_it_stays() {
        let error = DriverError::Unreachable("cut".into());
        let types = |object| reported(&object, &error).into_iter().map(|(type_, status, _)| (type_, status)).collect::<Vec<_>>();
        assert_eq!(types(machine(true, false)), [("VirtualMachineReady".to_owned(), None)]);
        assert_eq!(types(machine(true, true)), [("Ready".to_owned(), Some(false)), ("Deleting".to_owned(), Some(true))]);
    }
}
