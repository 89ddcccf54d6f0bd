//! The names and marks that the driver gives to VMs and their configuration drives.

use uuid::Uuid;

use super::client::Resource;
use crate::api::name::VmUuid;
use crate::vm::MachineKey;

/// The longest name of a VM: a label of DNS.
const NAME: usize = 63;
/// The prefix of the UUID in the tag of a VM, and in the name of its configuration drive.
pub const TAG: &str = "capw-";
const END: &str = ".iso";
/// The prefix of the WindowsMachine's name in the description of its VM.
pub const MACHINE: &str = "capw-name=";

/// Returns the name of a machine's VM.
pub fn name_of(key: &MachineKey) -> String {
    key.vm_name(NAME)
}

pub fn tag(vm: VmUuid) -> String {
    format!("{TAG}{vm}")
}

/// Returns the file name of a machine's configuration drive.
pub fn image_of(vm: VmUuid) -> String {
    format!("{TAG}{vm}{END}")
}

/// Returns the VM whose configuration drive a file is.
pub fn vm_of(file: &str) -> Option<VmUuid> {
    let uuid = file.strip_prefix(TAG)?.strip_suffix(END)?;
    Uuid::try_parse(uuid).ok().map(VmUuid).filter(|vm| image_of(*vm) == file)
}

/// Returns the description of a VM, which holds the owner mark.
pub fn description(key: &MachineKey) -> String {
    format!("{}\n{MACHINE}{}", key.owner_mark(), key.name)
}

/// Whether a VM may be ours, so that its owner is worth reading.
pub fn may_be_ours(guest: &Resource) -> bool {
    let is_digits = |digits: &str| digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    guest.is_vm() && guest.template == 0 && (guest.tags.contains(TAG) || guest.name.rsplit_once('-').is_some_and(|(_, digits)| is_digits(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> MachineKey {
        MachineKey { vm: VmUuid::of("a"), cluster: "lab/one".into(), name: "win-1".into() }
    }

    #[test]
    fn a_drive_names_its_vm() {
        assert_eq!(vm_of(&image_of(key().vm)), Some(key().vm));
        for other in ["capw-x.iso", "virtio-win.iso", "capw-3F2504E0-4F89-41D3-9A0C-0305E82C3301.iso"] {
            assert_eq!(vm_of(other), None, "{other}");
        }
        let guest = |name: &str, tags: &str| Resource { kind: "qemu".into(), name: name.into(), tags: tags.into(), ..Resource::default() };
        assert!(may_be_ours(&guest("win-1-3f2504e0", "")) && may_be_ours(&guest("x", &tag(key().vm))) && !may_be_ours(&guest("win-1", "gold")));
        assert!(!may_be_ours(&Resource { template: 1, ..guest("win-1-3f2504e0", "") }));
    }
}
