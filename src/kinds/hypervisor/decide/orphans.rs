//! VMs with our mark that no WindowsMachine claims: how they are reported, and when they may be removed.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::hypervisor::{Orphans, WindowsHypervisor};
use crate::api::machine::WindowsMachine;
use crate::api::name::VmUuid;
use crate::domain::identity::{own_vm, vm_uuid};
use crate::vm::MachineKey;

/// A VM with our mark that no WindowsMachine claims, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub key: MachineKey,
    pub since: Timestamp,
}

/// How long a VM may be without a machine unreported. Its machine may be moved, restored, or not shown by the watch yet.
const REPORTED_AFTER: SignedDuration = SignedDuration::from_mins(10);
const REMOVED_AFTER: SignedDuration = SignedDuration::from_hours(1);

impl Orphan {
    pub fn is_to_be_reported(&self, now: Timestamp) -> bool {
        now.duration_since(self.since) >= REPORTED_AFTER
    }

    /// Whether the orphan is old enough to be removed, if the hypervisor's spec requires that.
    pub fn is_to_be_removed(&self, object: &WindowsHypervisor, now: Timestamp) -> bool {
        object.spec.orphans == Orphans::Remove && object.metadata.deletion_timestamp.is_none() && now.duration_since(self.since) >= REMOVED_AFTER
    }
}

/// The VMs of machines. A machine that was moved or restored names its VM in its provider ID. A machine restored without provider ID has another UID,
/// so its VM is an orphan. Only the UID of an `unreadable` machine is known.
pub fn claimed<'a>(machines: impl Iterator<Item = &'a WindowsMachine>, unreadable: &[ObjectMeta]) -> HashSet<VmUuid> {
    machines.map(vm_uuid).chain(unreadable.iter().map(own_vm)).collect()
}

/// Whether a VM was created for a machine of this namespace, and no machine of the namespace claims it.
pub fn is_orphan(key: &MachineKey, namespace: &str, claimed: &HashSet<VmUuid>) -> bool {
    let is_here = key.cluster.split_once('/').is_some_and(|(of, _)| of == namespace);
    is_here && !claimed.contains(&key.vm)
}

/// The condition about orphans; `None` if there never were any.
pub fn orphans(object: &WindowsHypervisor, found: &[Orphan], unreadable: &[ObjectMeta]) -> Option<Desired> {
    let was_found = || condition::find(&object.status.as_ref()?.conditions, ConditionType::VirtualMachinesOwned).filter(|c| c.status == "False");
    if found.is_empty() {
        return was_found().map(|_| Desired::yes(ConditionType::VirtualMachinesOwned, Reason::OrphansGone));
    }
    let mut names: Vec<String> = found.iter().map(|orphan| format!("{} ({})", orphan.key.name, orphan.key.vm)).collect();
    names.sort();
    let more = names.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!(" and {more} more")).unwrap_or_default();
    names.truncate(NAMED);
    let what = match (object.spec.orphans, unreadable.first().and_then(|machine| machine.name.as_deref())) {
        (Orphans::Report, _) => String::new(),
        (Orphans::Remove, None) => "; they are removed after an hour".to_owned(),
        (Orphans::Remove, Some(name)) => format!("; none is removed while CAPW cannot read WindowsMachine {name}, since one of them may be its VM"),
    };
    let message = format!("no WindowsMachine asks for these VMs: {}{more}{what}", names.join(", "));
    Some(Desired::no(ConditionType::VirtualMachinesOwned, Reason::OrphansFound, message))
}

/// The most orphans that a message names.
const NAMED: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            assert_eq!(is_orphan(&key, "lab", &claimed(machines.iter(), &[])), orphan, "{key:?} {machines:?}");
        }
        assert!(!is_orphan(&key("lab/c1"), "lab", &claimed([].iter(), &[machine("a", None).metadata])), "its machine cannot be read");
    }

    #[test]
    fn an_orphan_is_reported_first_and_removed_only_where_that_is_wanted() {
        let orphan = Orphan { key: key("lab/c1"), since: Timestamp::UNIX_EPOCH };
        let at = |minute: i64| Timestamp::from_second(60 * minute).unwrap();
        assert!(!orphan.is_to_be_reported(at(9)) && orphan.is_to_be_reported(at(10)));
        assert!(!orphan.is_to_be_removed(&object("Remove"), at(59)) && orphan.is_to_be_removed(&object("Remove"), at(60)));
        assert!(!orphan.is_to_be_removed(&object("Report"), at(600)));
        let mut going = object("Remove");
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!orphan.is_to_be_removed(&going, at(600)), "its machines may have gone first, by a move");
        assert_eq!(orphans(&object("Report"), &[], &[]), None, "no write where there never were any");
        let said = orphans(&object("Report"), &[orphan], &[]).unwrap();
        assert_eq!((said.reason, said.status), (Reason::OrphansFound, Some(false)));
        assert!(said.message.contains("win-1"), "{said:?}");
        let mut reported = object("Report");
        let status = json!({"conditions": [{"type": "VirtualMachinesOwned", "status": "False", "reason": "OrphansFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        reported.status = serde_json::from_value(status).unwrap();
        assert_eq!(orphans(&reported, &[], &[]).unwrap().reason, Reason::OrphansGone);
    }
}
