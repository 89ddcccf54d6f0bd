//! WindowsHypervisor: what a listing of its VMs means for people, and when it is listed again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::hypervisor::{Orphans, WindowsHypervisor};
use crate::api::machine::WindowsMachine;
use crate::lifecycle::Decision;
use crate::lifecycle::identity::{chosen, vm_uuid};
use crate::vm::{DriverError, MachineKey};

/// Between two listings of an endpoint that answers.
const TICK: Duration = Duration::from_secs(10);
/// After a listing that failed: doubled each time, up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The endpoint has answered.
pub fn answered() -> Decision<()> {
    Decision::new(())
        .say(Desired::yes(ConditionType::Reachable, Reason::Reachable))
        .say(Desired::yes(ConditionType::Ready, Reason::Reachable))
        .look_again(TICK)
}

/// The endpoint has failed, `failures` times in a row (1 is the first).
pub fn failed(error: &DriverError, failures: u32) -> Decision<()> {
    let why = match error {
        DriverError::Auth(_) => Reason::Unauthorized,
        DriverError::Invalid(_) => Reason::InvalidSpec,
        _ => Reason::HypervisorUnreachable,
    };
    let after = BACKOFF.0.saturating_mul(1 << failures.min(10).saturating_sub(1)).min(BACKOFF.1);
    Decision::new(())
        .say(Desired::no(ConditionType::Reachable, why, error.to_string()))
        .say(Desired::no(ConditionType::Ready, why, error.to_string()))
        .look_again(after)
}

/// Whether the endpoint must be described again: it was not known to answer.
pub fn must_describe(object: &WindowsHypervisor) -> bool {
    !object.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, ConditionType::Reachable) && s.version.is_some())
}

/// A VM with our mark that no WindowsMachine asks for, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub key: MachineKey,
    pub since: Timestamp,
}

/// A machine may be on its way: moved, restored, or not shown by a watch yet.
const REPORTED_AFTER: SignedDuration = SignedDuration::from_mins(10);
const REMOVED_AFTER: SignedDuration = SignedDuration::from_hours(1);

impl Orphan {
    pub fn is_to_be_reported(&self, now: Timestamp) -> bool {
        now.duration_since(self.since) >= REPORTED_AFTER
    }

    /// Whether its time is over, where that is wanted.
    pub fn is_to_be_removed(&self, object: &WindowsHypervisor, now: Timestamp) -> bool {
        object.spec.orphans == Orphans::Remove && object.metadata.deletion_timestamp.is_none() && now.duration_since(self.since) >= REMOVED_AFTER
    }
}

/// Whether a VM was made for a machine of this namespace that is not among these. A machine that was moved or restored names its VM in
/// its provider ID; one that was restored without it has another UID, and its VM is an orphan.
pub fn is_orphan<'a>(key: &MachineKey, namespace: &str, mut machines: impl Iterator<Item = &'a WindowsMachine>) -> bool {
    let is_here = key.cluster.split_once('/').is_some_and(|(of, _)| of == namespace);
    is_here && !machines.any(|machine| vm_uuid(machine) == key.vm)
}

/// What is said of orphans; nothing as long as there never were any.
pub fn orphans(object: &WindowsHypervisor, found: &[Orphan]) -> Option<Desired> {
    let was_found = || condition::find(&object.status.as_ref()?.conditions, ConditionType::NoOrphans).filter(|c| c.status == "False");
    if found.is_empty() {
        return was_found().map(|_| Desired::yes(ConditionType::NoOrphans, Reason::OrphansGone));
    }
    let mut names: Vec<String> = found.iter().map(|orphan| format!("{} ({})", orphan.key.name, orphan.key.vm)).collect();
    names.sort();
    let more = names.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!(" and {more} more")).unwrap_or_default();
    names.truncate(NAMED);
    let what = if object.spec.orphans == Orphans::Remove { "; they are removed after an hour" } else { "" };
    let message = format!("no WindowsMachine asks for these VMs: {}{more}{what}", names.join(", "));
    Some(Desired::no(ConditionType::NoOrphans, Reason::OrphansFound, message))
}

/// Orphans that a message names.
const NAMED: usize = 20;

/// Whether a machine has, or may have, a VM there.
pub fn is_used_by(object: &WindowsHypervisor, machine: &WindowsMachine) -> bool {
    chosen(machine).as_deref() == object.metadata.name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::VmUuid;
    use serde_json::json;

    #[test]
    fn an_endpoint_that_fails_is_asked_less_and_less() {
        let error = DriverError::Unreachable("cut".into());
        let waits: Vec<u64> = (1..8).map(|n| failed(&error, n).look_again.unwrap().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 15, 15, 15]);
        assert_eq!(failed(&error, u32::MAX).look_again.unwrap().as_secs(), 15);
    }

    fn object(orphans: &str) -> WindowsHypervisor {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": "h", "namespace": "lab"}, "spec": {"simulated": {}, "orphans": orphans}}))
        .unwrap()
    }

    fn key(cluster: &str) -> MachineKey {
        MachineKey { vm: VmUuid::of("a"), cluster: cluster.into(), name: "win-1".into() }
    }

    #[test]
    fn an_orphan_is_a_vm_of_this_namespace_that_no_machine_names() {
        let machine = |uid: &str, id: Option<String>| -> WindowsMachine {
            serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
                "metadata": {"name": "m", "uid": uid}, "spec": {"image": "w", "providerID": id}}))
            .unwrap()
        };
        let moved = machine("another", Some(format!("windows://h/{}", VmUuid::of("a"))));
        for (key, machines, orphan) in [
            (key("lab/c1"), vec![], true),
            (key("lab/c1"), vec![machine("b", None)], true),
            (key("lab/c1"), vec![machine("b", None), machine("a", None)], false),
            (key("lab/c1"), vec![moved], false),
            (key("laboratory/c1"), vec![], false),
        ] {
            assert_eq!(is_orphan(&key, "lab", machines.iter()), orphan, "{key:?} {machines:?}");
        }
    }

    #[test]
    fn an_orphan_is_reported_first_and_removed_only_where_that_is_wanted() {
        let orphan = Orphan { key: key("lab/c1"), since: Timestamp::UNIX_EPOCH };
        let at = |minute: i64| Timestamp::from_second(60 * minute).unwrap();
        assert!(!orphan.is_to_be_reported(at(9)) && orphan.is_to_be_reported(at(10)));
        assert!(!orphan.is_to_be_removed(&object("Remove"), at(59)) && orphan.is_to_be_removed(&object("Remove"), at(60)));
        assert!(!orphan.is_to_be_removed(&object("Report"), at(600)));
        assert_eq!(orphans(&object("Report"), &[]), None, "no write where there never were any");
        let said = orphans(&object("Report"), &[orphan]).unwrap();
        assert_eq!((said.reason, said.status), (Reason::OrphansFound, Some(false)));
        assert!(said.message.contains("win-1"), "{said:?}");
        let mut reported = object("Report");
        let status = json!({"conditions": [{"type": "NoOrphans", "status": "False", "reason": "OrphansFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        reported.status = serde_json::from_value(status).unwrap();
        assert_eq!(orphans(&reported, &[]).unwrap().reason, Reason::OrphansGone);
    }

    #[test]
    fn each_class_of_error_has_its_reason() {
        for (error, reason) in [
            (DriverError::Auth("x".into()), Reason::Unauthorized),
            (DriverError::Invalid("x".into()), Reason::InvalidSpec),
            (DriverError::Unreachable("x".into()), Reason::HypervisorUnreachable),
            (DriverError::Transient("x".into()), Reason::HypervisorUnreachable),
        ] {
            let decision = failed(&error, 1);
            assert!(decision.conditions.iter().all(|c| c.reason == reason && c.status == Some(false)), "{decision:?}");
        }
    }
}
