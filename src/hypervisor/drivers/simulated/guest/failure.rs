//! The faults of a guest: the step that fails, with the messages of the real programs.

use crate::api::hypervisor::Fault;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Check, FeatureState, Item, Kind, Script};

/// Why the item fails permanently, if one of the faults hits it.
pub fn words(faults: &[Fault], item: &Item) -> Option<&'static str> {
    faults.iter().find_map(|fault| hits(*fault, &item.kind))
}

fn hits(fault: Fault, kind: &Kind) -> Option<&'static str> {
    let join =
        |argv: &[String]| argv.first().is_some_and(|program| program.eq_ignore_ascii_case(paths::KUBEADM)) && argv.iter().any(|word| word == "join");
    match (fault, kind) {
        (Fault::FeatureMissing, Kind::Feature { state: FeatureState::Enabled, .. }) => {
            Some("The request to add or remove features on the specified server failed. The source files could not be found. Error: 0x800f081f")
        }
        (Fault::DiskFull, Kind::File { .. }) => Some("There is not enough space on the disk."),
        (Fault::RuntimeBroken, Kind::Running { name, .. }) if name == "containerd" => {
            Some("Failed to start service 'containerd (containerd)': the service did not respond in a timely fashion")
        }
        (Fault::ClockWrong, Kind::Script(Script::Clock { .. })) => Some("expected a clock within 30 seconds of the API server, found 3598"),
        (Fault::ProgramMissing, Kind::Wait { check: Check::File(path) }) if path == paths::KUBELET => {
            Some(r"expected file C:\k\kubelet.exe, found none within 5 seconds")
        }
        (fault, Kind::Command { argv, .. }) if join(argv) => joining(fault),
        _ => None,
    }
}

/// The message of a failing `kubeadm.exe join`: the text of v1.36.3, cut as in a report. The discovery messages were printed under Wine.
fn joining(fault: Fault) -> Option<&'static str> {
    Some(match fault {
        Fault::TokenExpired => {
            r#"C:\k\kubeadm.exe ended with 1: error: error execution phase preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the cluster-info ConfigMap for token ID "abcdef""#
        }
        Fault::ClusterUnknown => {
            r#"C:\k\kubeadm.exe ended with 1: error: error execution phase preflight: couldn't validate the identity of the API Server: cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "sha256:e72a8b24b6c8b6d003f776f0084e"#
        }
        Fault::NameTaken => {
            r#"C:\k\kubeadm.exe ended with 1: error: error execution phase kubelet-start: a Node with name "win-1" and status "Ready" already exists in the cluster. You must delete the existing Node or change the name of this new joining Node"#
        }
        Fault::KubeletBroken => {
            r#"C:\k\kubeadm.exe ended with 1: error: error execution phase kubelet-wait-bootstrap: failed while waiting for the kubelet to start: The HTTP call equal to 'curl -sSL http://127.0.0.1:10248/healthz' returned error: Get "http://127.0.0.1:10248"#
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;

    #[test]
    fn each_fault_hits_one_step_of_an_ordinary_plan_first() {
        let plan = bootstrap::sample_plan();
        let first = |fault| plan.items.iter().find(|item| words(&[fault], item).is_some()).map(|item| item.code.number() / 10);
        for (fault, group) in [
            (Fault::FeatureMissing, 2),
            (Fault::ClockWrong, 3),
            (Fault::ProgramMissing, 4),
            (Fault::RuntimeBroken, 5),
            (Fault::TokenExpired, 7),
            (Fault::ClusterUnknown, 7),
            (Fault::NameTaken, 7),
            (Fault::KubeletBroken, 7),
        ] {
            assert_eq!(first(fault), Some(group), "{fault:?}");
        }
        assert!(first(Fault::DiskFull).is_some());
        for harmless in [Fault::NoBoot, Fault::NoJoin, Fault::Slow, Fault::CreateFails] {
            assert_eq!(first(harmless), None);
        }
    }
}
