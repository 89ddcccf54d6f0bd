//! The features that a host's QEMU can give to VMs, as the daemon reports them.

use roxmltree::{Document, Node};

use crate::api::hypervisor::Acceleration;
use crate::vm::VmSpec;

/// The domain capabilities of a daemon (`virsh domcapabilities`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    uefi: bool,
    secure_boot: bool,
    tpm: bool,
    /// Whether guests can have virtualization.
    nested: bool,
}

impl Capabilities {
    pub fn read(xml: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let root = document.root_element();
        let os = child(root, "os")?;
        let tpm = child(root, "devices").and_then(|devices| child(devices, "tpm")).filter(|tpm| tpm.attribute("supported") == Some("yes"));
        Some(Self {
            uefi: has(os, "firmware", "efi"),
            secure_boot: child(os, "loader").is_some_and(|loader| has(loader, "secure", "yes")),
            // libvirt lists the emulator if swtpm is installed.
            tpm: tpm.is_some_and(|tpm| has(tpm, "backendModel", "emulator") && has(tpm, "model", "tpm-crb")),
            nested: child(root, "cpu").is_some_and(is_nested),
        })
    }

    /// Returns what a machine requires and the host lacks: the field of the spec with the value, and the remedy.
    pub fn lacks(&self, spec: &VmSpec, acceleration: Acceleration) -> Option<&'static str> {
        let lacking = [
            (
                spec.uefi && !self.uefi,
                "has no UEFI for guests, and spec.firmware.type of the machine is UEFI: install it on the host (package ovmf or edk2-ovmf), or set spec.firmware.type to BIOS",
            ),
            (
                spec.uefi && spec.secure_boot && !self.secure_boot,
                "has no UEFI with Secure Boot for guests, and spec.firmware.secureBoot of the machine is true: install it on the host (package ovmf or edk2-ovmf, in a build with Secure Boot), or set spec.firmware.secureBoot to false",
            ),
            (
                spec.tpm && !self.tpm,
                "has no emulator of TPMs, and spec.firmware.tpm of the machine is true: install swtpm and swtpm-tools on the host, or set spec.firmware.tpm to false",
            ),
            (
                spec.nested_virtualization && acceleration == Acceleration::Kvm && !self.nested,
                "gives guests no virtualization, and spec.nestedVirtualization of the machine is true: load kvm_intel or kvm_amd with nested=1 on the host, or set spec.nestedVirtualization to false",
            ),
        ];
        lacking.into_iter().find_map(|(is_lacking, text)| is_lacking.then_some(text))
    }
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// Whether a list of values contains a value.
fn has(node: Node, list: &str, value: &str) -> bool {
    let list = node.children().find(|child| child.has_tag_name("enum") && child.attribute("name") == Some(list));
    list.is_some_and(|list| list.children().any(|child| child.has_tag_name("value") && child.text() == Some(value)))
}

/// Whether guests can have virtualization. libvirt reports the processor as a model with differences: AMD's models have it, Intel's do not.
fn is_nested(cpu: Node) -> bool {
    let mode = cpu.children().find(|mode| mode.has_tag_name("mode") && mode.attribute("name") == Some("host-model"));
    // Without a description of the processor the answer is unknown, and the guest will show it.
    let Some(mode) = mode.filter(|mode| mode.attribute("supported") == Some("yes")) else { return true };
    let policy = |name: &str| {
        let feature = mode.children().find(|node| node.has_tag_name("feature") && node.attribute("name") == Some(name));
        feature.and_then(|feature| feature.attribute("policy"))
    };
    match child(mode, "vendor").and_then(|vendor| vendor.text()) {
        Some("Intel") => policy("vmx") == Some("require"),
        Some("AMD" | "Hygon") => policy("svm") != Some("disable"),
        _ => true,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::hypervisor::contract;

    /// Capabilities as libvirt 9.0 writes them, without the parts that are not read.
    pub const FULL: &str = "<domainCapabilities><domain>kvm</domain><os supported='yes'><enum name='firmware'><value>efi</value></enum>\
        <loader supported='yes'><enum name='secure'><value>yes</value><value>no</value></enum></loader></os>\
        <cpu><mode name='host-passthrough' supported='yes'/><mode name='host-model' supported='yes'><model>Cascadelake-Server</model>\
        <vendor>Intel</vendor><feature policy='require' name='vmx'/></mode></cpu><devices><tpm supported='yes'>\
        <enum name='model'><value>tpm-tis</value><value>tpm-crb</value></enum>\
        <enum name='backendModel'><value>passthrough</value><value>emulator</value></enum></tpm></devices></domainCapabilities>";

    #[test]
    fn what_a_host_lacks_is_named_with_the_field_that_asks_for_it() {
        let windows = VmSpec { nested_virtualization: true, ..contract::spec() };
        let lacks = |xml: &str, spec: &VmSpec| Capabilities::read(xml).unwrap().lacks(spec, Acceleration::Kvm).unwrap_or_default();
        assert_eq!(lacks(FULL, &windows), "");
        let plain = VmSpec { uefi: false, secure_boot: false, tpm: false, nested_virtualization: false, ..windows.clone() };
        for (there, gone, field) in [
            ("<value>efi</value>", "", "spec.firmware.type of the machine is UEFI"),
            ("<value>yes</value>", "", "spec.firmware.secureBoot of the machine is true"),
            ("<value>emulator</value>", "", "spec.firmware.tpm of the machine is true"),
            ("<tpm supported='yes'>", "<tpm supported='no'>", "spec.firmware.tpm of the machine is true"),
            ("<feature policy='require' name='vmx'/>", "", "spec.nestedVirtualization of the machine is true"),
            (
                "<vendor>Intel</vendor>",
                "<vendor>AMD</vendor><feature policy='disable' name='svm'/>",
                "spec.nestedVirtualization of the machine is true",
            ),
        ] {
            assert!(FULL.contains(there));
            let xml = FULL.replace(there, gone);
            assert!(lacks(&xml, &windows).contains(field), "{field}: {}", lacks(&xml, &windows));
            assert_eq!(lacks(&xml, &plain), "", "{field}: who does not ask for it needs it not");
        }
        for unknown in [
            FULL.replace("<vendor>Intel</vendor>", "<vendor>AMD</vendor>"),
            FULL.replace("host-model' supported='yes'", "host-model' supported='no'"),
        ] {
            assert_eq!(lacks(&unknown, &windows), "");
        }
        assert_eq!((Capabilities::read(""), Capabilities::read("<domainCapabilities/>")), (None, None));
    }
}
