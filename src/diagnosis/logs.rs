//! Converts collected log files to symptoms, line by line.

use super::symptom::{Source, Symptom};
use crate::vm::GuestReport;

/// Returns the kind of log that a file name suggests, if any.
pub fn kind_of(name: &str) -> Option<Source> {
    let name = name.to_ascii_lowercase();
    // The first match wins: `containerd-shim.log` is containerd's, `calico-node-kubelet.log` the plug-in's.
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

/// Returns a line as a symptom, unless it is blank. An intact report line of the guest is recognized in any file.
pub fn symptom(kind: Source, file: &str, number: usize, line: &str) -> Option<Symptom> {
    let at = format!("{file}:{number}");
    if let Some(report) = line.find("capw1 ").and_then(|start| GuestReport::parse(line.get(start..)?.trim_end())) {
        return Some(Symptom { at, ..Symptom::report(&report) });
    }
    (!line.trim().is_empty()).then(|| Symptom::new(kind, at, line))
}
