//! What goes wrong in a guest when it is told to: the step that fails, in the words of the real programs.

use crate::api::hypervisor::Fault;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{FeatureState, Item, Kind};

/// Why the item fails for good, if one of the faults befalls it.
pub fn words(faults: &[Fault], item: &Item) -> Option<&'static str> {
    faults.iter().find_map(|fault| befalls(*fault, &item.kind))
}

fn befalls(fault: Fault, kind: &Kind) -> Option<&'static str> {
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
        (Fault::TokenExpired, Kind::Command { argv, .. }) if join(argv) => {
            Some("kubeadm.exe ended with 1: could not find a JWS signature in the cluster-info ConfigMap for token ID")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;

    #[test]
    fn each_fault_befalls_one_step_of_an_ordinary_plan_first() {
        let plan = bootstrap::sample_plan();
        let first = |fault| plan.items.iter().find(|item| words(&[fault], item).is_some()).map(|item| item.code / 10);
        for (fault, group) in [(Fault::FeatureMissing, 2), (Fault::RuntimeBroken, 5), (Fault::TokenExpired, 7)] {
            assert_eq!(first(fault), Some(group), "{fault:?}");
        }
        assert!(first(Fault::DiskFull).is_some());
        for harmless in [Fault::NoBoot, Fault::NoJoin, Fault::Slow, Fault::CreateFails] {
            assert_eq!(first(harmless), None);
        }
    }
}
