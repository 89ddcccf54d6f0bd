//! Collected log files → signs, line by line.

use super::sign::{Sign, Source};
use crate::vm::GuestReport;

/// What kind of file has that name; `None` if the name says nothing.
pub fn kind_of(name: &str) -> Option<Source> {
    let name = name.to_ascii_lowercase();
    // The first that fits: `containerd-shim.log` is containerd's, `calico-node-kubelet.log` the plug-in's.
    let words: [(&[&str], Source); 10] = [
        (&["report"], Source::Report),
        (&["bootstrap", "capw"], Source::Bootstrap),
        (&["cloudbase"], Source::CloudbaseInit),
        (&["calico", "flannel", "azure-vnet", "cni", "antrea", "hns"], Source::Cni),
        (&["kube-proxy", "kubeproxy"], Source::KubeProxy),
        (&["kubeadm"], Source::Kubeadm),
        (&["kubelet"], Source::Kubelet),
        (&["containerd", "panic"], Source::Containerd),
        (&["setupact", "setuperr", "system", "application", "events", "eventlog"], Source::Windows),
        (&["serial", "console", "com1"], Source::Report),
    ];
    words.into_iter().find(|(words, _)| words.iter().any(|word| name.contains(word))).map(|(_, kind)| kind)
}

/// The sign that a line is, if it is one at all. A report line of the guest, whole and with its check sum, is one wherever it stands.
pub fn sign(kind: Source, file: &str, number: usize, line: &str) -> Option<Sign> {
    let at = format!("{file}:{number}");
    if let Some(report) = line.find("capw1 ").and_then(|start| GuestReport::parse(line.get(start..)?.trim_end())) {
        return Some(Sign { at, ..Sign::report(&report) });
    }
    (!line.trim().is_empty()).then(|| Sign::new(kind, at, line))
}
