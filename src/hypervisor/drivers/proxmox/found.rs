//! The owner and the state of a VM, as read from the cluster.

use std::collections::HashMap;

use uuid::Uuid;

use super::client::{Config, Location, Status};
use super::hardware;
use super::names::{MACHINE, name_of};
use crate::api::name::VmUuid;
use crate::vm::{GuestReport, MachineKey, Power, Present, Seeded};

/// The locks of a VM whose configuration does not name its owner yet, or any more.
const UNDECIDED: [&str; 3] = ["clone", "create", "destroyed"];

/// A VM that was read.
#[derive(Clone, Debug)]
pub struct Found {
    pub at: Location,
    pub config: Config,
    uuid: Option<Uuid>,
    mark: String,
    /// The name of the WindowsMachine that the VM was created for.
    machine: String,
}

impl Found {
    pub fn read(at: Location, config: Config) -> Self {
        let description = config.get("description").unwrap_or_default();
        let smbios = config.get("smbios1").unwrap_or_default();
        let machine = description.lines().find_map(|line| line.trim().strip_prefix(MACHINE)).unwrap_or_default().to_owned();
        let mark = description.lines().map(str::trim).find(|line| MachineKey::of_mark(line, "x").is_some()).unwrap_or_default().to_owned();
        let uuid = smbios.split(',').find_map(|part| part.strip_prefix("uuid=")).and_then(|text| Uuid::try_parse(text).ok());
        Self { at, uuid, mark, machine, config }
    }

    pub fn name(&self) -> &str {
        self.config.get("name").unwrap_or_default()
    }

    /// Returns the lock of the VM, e.g. `clone`, `backup`.
    pub fn lock(&self) -> Option<&str> {
        self.config.get("lock")
    }

    /// Returns the machine that the VM was created for. A copy of such a VM carries its mark too, but has neither its UUID nor its name.
    pub fn key(&self) -> Option<MachineKey> {
        MachineKey::of_mark(&self.mark, &self.machine).filter(|key| self.is_ours(key))
    }

    pub fn is_ours(&self, key: &MachineKey) -> bool {
        self.mark == key.owner_mark() && self.is_in_place_of(key) && self.config.get("template").is_none_or(|value| value == "0")
    }

    /// Whether the VM has the UUID or the name of that machine's VM.
    pub fn is_in_place_of(&self, key: &MachineKey) -> bool {
        self.uuid == Some(key.vm.0) || self.name() == name_of(key)
    }

    /// Whether the mark names that machine, in any cluster.
    pub fn is_marked_for(&self, key: &MachineKey) -> bool {
        key.is_named_by(&self.mark)
    }

    /// Whether the VM is being created or removed and does not name its owner.
    pub fn is_undecided(&self) -> bool {
        self.mark.is_empty() && self.lock().is_some_and(|lock| UNDECIDED.contains(&lock))
    }

    /// Whether the VM has everything that the machine requires; the same request sets it and the UUID.
    pub fn is_configured(&self, key: &MachineKey) -> bool {
        self.uuid == Some(key.vm.0)
    }

    /// Returns the key of the drive that holds the configuration drive.
    pub fn medium(&self, volume: &str) -> Option<&str> {
        hardware::drive_with(&self.config, volume)
    }
}

/// Returns the power of a VM in a state of QEMU, and why a VM that is on does not run.
pub fn power(state: &str, lock: &str, at: &Location) -> (Power, Option<String>) {
    let trouble = |why: String| (Power::On, Some(why));
    let id = at.vmid;
    match (state, lock) {
        (_, "clone") => (Power::Creating, None),
        ("stopped", "suspended") => trouble(format!("it was hibernated, but not by CAPW: qm resume {id}")),
        ("stopped" | "prelaunch", _) => (Power::Off, None),
        ("paused", "backup" | "snapshot" | "migrate" | "suspending") => (Power::On, None),
        ("paused" | "suspended", _) => trouble(format!("it was paused, but not by CAPW: qm resume {id}")),
        ("io-error", _) => trouble(format!("its disk failed, or its storage is full: fix the storage, then qm resume {id}")),
        ("internal-error" | "guest-panicked", _) => trouble(format!("QEMU calls it {state}: qm reset {id}")),
        ("unknown", _) => trouble(format!("its node {} does not answer", at.node)),
        _ => (Power::On, None),
    }
}

/// Returns the state that counts: QEMU's state or, without one, whether the VM is on.
pub fn state(status: &Status) -> &str {
    if status.status == "stopped" || status.qmpstatus.is_empty() { &status.status } else { &status.qmpstatus }
}

/// Describes a VM with that power.
pub fn present((power, trouble): (Power, Option<String>), seeded: bool, report: Option<GuestReport>) -> Present {
    Present { power, seeded: Seeded::from_attached(seeded), vm: true, addresses: Vec::new(), report, trouble, warning: None }
}

/// Describes a VM that is being created, of which nothing else is known.
pub fn creating() -> Present {
    present((Power::Creating, None), false, None)
}

/// Describes the configuration drive of a VM that was deleted.
pub fn leftover() -> Present {
    Present { vm: false, ..present((Power::Off, None), true, None) }
}

/// Where VMs were found. Another VM may get the id later, so the driver reads the owner before it changes anything.
pub type Known = HashMap<VmUuid, Location>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::drivers::proxmox::names::description;
    use serde_json::json;

    fn key() -> MachineKey {
        MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win-1".into() }
    }

    fn found(values: serde_json::Value) -> Found {
        Found::read(Location { node: "pve1".into(), vmid: 20_001 }, serde_json::from_value(values).unwrap())
    }

    #[test]
    fn a_vm_is_ours_by_its_mark_and_by_its_uuid_or_name() {
        let (mark, uuid) = (description(&key()) + "\n", format!("uuid={}", key().vm));
        let cloned = found(json!({"name": name_of(&key()), "description": mark, "smbios1": "uuid=11111111-1111-4111-8111-111111111111"}));
        assert!(cloned.is_ours(&key()) && !cloned.is_configured(&key()) && cloned.key() == Some(key()));
        let renamed = found(json!({"name": "x", "description": format!("a note\n{mark}"), "smbios1": format!("base64=1,{uuid}")}));
        assert!(renamed.is_ours(&key()) && renamed.is_configured(&key()));
        let copy = found(json!({"name": "Copy-of-VM-x", "description": mark, "smbios1": "uuid=11111111-1111-4111-8111-111111111111"}));
        assert!(!copy.is_ours(&key()) && !copy.is_in_place_of(&key()) && copy.key().is_none());
        let template = found(json!({"name": name_of(&key()), "description": mark, "template": 1}));
        assert!(!template.is_ours(&key()));
        let other = MachineKey { cluster: "lab/two".into(), ..key() };
        assert!(!cloned.is_ours(&other) && cloned.is_in_place_of(&other) && cloned.is_marked_for(&other));
        let temporary = found(json!({"description": "qmclone temporary file\n", "lock": "clone"}));
        assert!(temporary.is_undecided() && !cloned.is_undecided() && !found(json!({"lock": "backup"})).is_undecided());
    }

    #[test]
    fn a_vm_that_does_not_run_says_why() {
        let at = Location { node: "pve2".into(), vmid: 20_001 };
        assert_eq!((power("running", "", &at), power("stopped", "", &at)), ((Power::On, None), (Power::Off, None)));
        assert_eq!((power("stopped", "clone", &at).0, power("paused", "backup", &at)), (Power::Creating, (Power::On, None)));
        for (state, lock, word) in
            [("paused", "", "qm resume 20001"), ("stopped", "suspended", "hibernated"), ("io-error", "", "storage"), ("unknown", "", "pve2")]
        {
            assert!(matches!(power(state, lock, &at), (Power::On, Some(why)) if why.contains(word)), "{state}");
        }
        let status = |status: &str, qmp: &str| Status { status: status.into(), qmpstatus: qmp.into(), lock: String::new() };
        assert_eq!(
            (state(&status("running", "paused")), state(&status("stopped", "stopped")), state(&status("running", ""))),
            ("paused", "stopped", "running")
        );
    }
}
