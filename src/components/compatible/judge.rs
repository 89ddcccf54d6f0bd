//! Judges a Linux side: can Windows nodes join its network, and which settings must change before?

use super::{calico, flannel, operator, others, ranges};
use crate::api::condition::Reason;
use crate::components::finding::{Finding, is_warning};
use crate::components::linux_side::{Kind, LinuxSide, Settings};
use crate::components::place::{ObjectRef, Unreadable};

/// Returns the problems that keep Windows nodes out, worst first. Empty: no problem exists.
pub fn judge(side: &LinuxSide) -> Vec<Finding> {
    let mut found: Vec<Finding> = side.unreadable.iter().map(unreadable).collect();
    if !side.nodes.iter().any(|node| !node.windows) {
        found.push(no_linux_nodes());
    }
    match refused(side) {
        // If Windows nodes cannot join the network at all, its settings do not matter.
        Some(refused) => found.push(refused),
        None => {
            found.extend(match &side.network.settings {
                Settings::Flannel(flannel) => flannel::judge(flannel, &side.network, &side.nodes),
                Settings::Calico(calico) => {
                    let by_operator = calico.operator.iter().flat_map(|operator| operator::judge(operator, side));
                    calico::judge(calico).into_iter().chain(by_operator).collect()
                }
                Settings::Antrea(antrea) => others::antrea(antrea),
                Settings::Ovn(ovn) => others::ovn(ovn),
                Settings::Aws(aws) => others::aws(aws),
                Settings::None | Settings::Unknown(_) => Vec::new(),
            });
            // A finding of the network's own family is better, because it names the setting.
            let told = found.iter().any(|finding| finding.reason == Reason::Ipv6Only);
            found.extend(ranges::judge(side).into_iter().filter(|finding| !(told && finding.reason == Reason::Ipv6Only)));
        }
    }
    // This check is last: once Windows is enabled, Calico's operator refuses incompatible settings and no longer manages Linux nodes.
    if found.iter().all(|finding| is_warning(finding.reason)) {
        found.extend(operator::switch(side));
    }
    found.sort_by_key(|finding| finding.reason);
    found
}

fn unreadable(problem: &Unreadable) -> Finding {
    Finding {
        reason: Reason::Unreadable,
        object: problem.object.clone(),
        field: problem.field.clone(),
        message: format!("{} {}", if problem.field.is_empty() { "the object" } else { &problem.field }, problem.problem),
        patch: None,
        remedy: "write a value that its program can read: as it is, the program does not use it, or does not start again".into(),
    }
}

fn no_linux_nodes() -> Finding {
    Finding {
        reason: Reason::NoLinuxNodes,
        object: ObjectRef::new("Node", None, "*"),
        field: "status.nodeInfo.operatingSystem".into(),
        message: "there is no Linux node: nothing shows which network is in use, and the cluster's name resolution has no place to run".into(),
        patch: None,
        remedy: "add a Linux node: CoreDNS and the network's own controllers run on Linux only".into(),
    }
}

/// Reports a network that is unknown, or that Windows nodes cannot join.
fn refused(side: &LinuxSide) -> Option<Finding> {
    let network = &side.network;
    let object = || side.nodes.iter().find(|node| !node.windows).map_or_else(|| ObjectRef::new("Node", None, "*"), |node| node.object.clone());
    let read_from = network.from.first().map_or("", |origin| origin.source.as_str());
    let unsupported = |why: &str| Finding {
        reason: Reason::NetworkUnsupported,
        object: object(),
        field: "metadata.annotations".into(),
        message: format!("the network is {} ({read_from}): {why}", network.kind),
        patch: None,
        remedy: "use a cluster whose network has a Windows side: Flannel with vxlan or host-gw, Calico with VXLAN, Antrea".into(),
    };
    match (network.kind, &network.settings) {
        (_, Settings::Unknown(doubt)) => Some(Finding {
            reason: Reason::NetworkUnknown,
            object: object(),
            field: "metadata.annotations".into(),
            message: format!("which network the cluster has is not known: {doubt}"),
            patch: None,
            remedy: "if a network was replaced, remove what is left of the old one; if CAPW does not know it, set up its Windows side by hand".into(),
        }),
        (Kind::Cilium, _) => Some(unsupported("Cilium has no Windows side")),
        (Kind::Canal, _) => Some(unsupported("Calico's policies on Flannel's network do not exist for Windows")),
        (Kind::Kindnet, _) => Some(unsupported("kindnet has no Windows side")),
        (Kind::KubeRouter, _) => Some(unsupported("kube-router has no Windows side")),
        (Kind::Weave, _) => Some(unsupported("Weave Net has no Windows side that still works")),
        _ => None,
    }
}
