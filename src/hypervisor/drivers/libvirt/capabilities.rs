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
pub mod tests;
