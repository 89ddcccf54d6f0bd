//! Rules about the kubelet's flags: L3, L8, L23.

use super::findings::Findings;
use super::input::Node;
use crate::bootstrap::render::kubelet::surface::{Known, Surface, Windows};

const PRIORITY_CLASSES: [&str; 6] = [
    "IDLE_PRIORITY_CLASS",
    "BELOW_NORMAL_PRIORITY_CLASS",
    "NORMAL_PRIORITY_CLASS",
    "ABOVE_NORMAL_PRIORITY_CLASS",
    "HIGH_PRIORITY_CLASS",
    "REALTIME_PRIORITY_CLASS",
];

pub(super) fn check(node: &Node<'_>, surface: &Surface, windows: &Windows, findings: &mut Findings) {
    for (number, (name, value)) in node.flags.iter().enumerate() {
        let place = format!("spec.kubelet.extraArgs[{name}]");
        let known = surface.flag(name, node.minor);
        if let (Known::Never | Known::Later(_) | Known::Earlier(_), Some(instead)) = (&known, windows.removed_flags.get(name)) {
            findings.error("L8", place, value, format!("the kubelet of 1.{} has no such flag and would not start: {instead}", node.minor));
            continue;
        }
        match known {
            Known::Here(_) => {}
            Known::Later(minor) => findings.error("L8", &place, value, format!("the kubelet has this flag from 1.{minor} on: leave it out")),
            Known::Earlier(minor) => {
                findings.error("L8", &place, value, format!("the kubelet had this flag until 1.{minor} and would not start with it: leave it out"));
            }
            Known::Never => {
                findings.error("L8", &place, value, "the kubelet on Windows has no such flag and would not start: correct the name or leave it out");
            }
        }
        if name == "windows-priorityclass" && !PRIORITY_CLASSES.contains(&value.as_str()) {
            findings.error("L3", "spec.kubelet.priorityClass", value, format!("expected one of {}", PRIORITY_CLASSES.join(", ")));
        }
        if number < node.ours {
            continue;
        }
        if let Some(instead) = windows.owned_flags.get(name) {
            findings.error("L23", &place, value, format!("CAPW or kubeadm sets this flag: {instead}"));
        } else if let Some(field) = surface.field_of_flag(name) {
            let remedy = format!("flags that are also fields are deprecated: use spec.kubelet.extraConfig.{field}");
            findings.warning("L23", &place, value, remedy);
        }
    }
}
