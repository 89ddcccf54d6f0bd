//! The identity of a VM, and the marks of its owner.

use crate::api::name::VmUuid;

/// The parts of an owner mark before the UUID, and before the cluster.
const MARK_MACHINE: &str = "capw-machine=";
const MARK_CLUSTER: &str = ";capw-cluster=";

/// The identity of a VM: its own, and its owner cluster. Both are known before the VM exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineKey {
    /// UUID of the VM, the last part of its provider ID.
    pub vm: VmUuid,
    /// `<namespace>/<name>` of the Cluster; unlike UIDs, it survives `clusterctl move`.
    pub cluster: String,
    /// Name of the WindowsMachine.
    pub name: String,
}

impl MachineKey {
    /// Returns the mark that a driver puts on everything it creates, and checks before it destroys anything.
    pub fn owner_mark(&self) -> String {
        format!("{}{}", self.machine_mark(), self.cluster)
    }

    /// Whether a mark names this machine, with any cluster.
    pub fn is_named_by(&self, mark: &str) -> bool {
        mark.starts_with(&self.machine_mark())
    }

    fn machine_mark(&self) -> String {
        format!("{MARK_MACHINE}{}{MARK_CLUSTER}", self.vm)
    }

    /// Returns the key of a VM with that mark, created for the WindowsMachine of that name; `None` if the mark is not ours.
    pub fn of_mark(mark: &str, name: &str) -> Option<Self> {
        let (vm, cluster) = mark.strip_prefix(MARK_MACHINE)?.split_once(MARK_CLUSTER)?;
        let key = Self { vm: VmUuid(uuid::Uuid::try_parse(vm).ok()?), cluster: cluster.to_owned(), name: name.to_owned() };
        (key.owner_mark() == mark && !name.is_empty()).then_some(key)
    }

    /// Returns the name of the VM on a hypervisor whose names may have `limit` characters: the name of the WindowsMachine, cut, and eight digits of
    /// the UUID, since two clusters may have machines of the same name.
    pub fn vm_name(&self, limit: usize) -> String {
        let id = self.vm.0.simple().to_string();
        let digits = id.get(..8).unwrap_or(&id);
        let start: String = self.name.chars().take(limit.saturating_sub(digits.len() + 1)).collect();
        format!("{}-{digits}", start.trim_end_matches(['-', '.']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_a_hypervisor_differ_even_if_those_of_the_machines_do_not() {
        let key = |name: &str, uid: &str| MachineKey { vm: VmUuid::of(uid), cluster: "lab/one".into(), name: name.into() };
        let digits = &VmUuid::of("a").to_string()[..8];
        assert_eq!(key("win-7k2fq", "a").vm_name(63), format!("win-7k2fq-{digits}"));
        assert_ne!(key("win-7k2fq", "b").vm_name(63), key("win-7k2fq", "a").vm_name(63));
        let long = key(&"x".repeat(253), "a").vm_name(63);
        assert!(long.len() == 63 && long.ends_with(digits), "{long}");
        assert_eq!(key("a-very.long-name", "a").vm_name(16), format!("a-very-{digits}"), "no dot or dash before the digits");
    }

    #[test]
    fn a_mark_names_its_machine() {
        let key = MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win-1".into() };
        assert_eq!(MachineKey::of_mark(&key.owner_mark(), "win-1"), Some(key.clone()));
        for (mark, name) in
            [("", "win-1"), ("capw-machine=x;capw-cluster=lab/one", "win-1"), (&key.owner_mark()[1..], "win-1"), (&key.owner_mark(), "")]
        {
            assert_eq!(MachineKey::of_mark(mark, name), None, "{mark}");
        }
    }
}
