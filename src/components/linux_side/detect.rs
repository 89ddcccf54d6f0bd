//! Detects the network: from annotations of nodes, then from the programs on them, then from the cluster's API groups.

use std::collections::BTreeSet;

use super::cluster::{Cluster, counted};
use super::kind::Kind;
use crate::components::workloads::{Program, Workload};

/// The network, and how it was recognized.
pub struct Detected {
    pub kind: Kind,
    pub from: String,
    /// The reason why the network is unknown.
    pub doubt: String,
}

/// Prefixes of the annotations that networks write on their nodes.
pub const ANNOTATIONS: [(&str, Kind); 6] = [
    ("flannel.alpha.coreos.com/", Kind::Flannel),
    ("projectcalico.org/", Kind::Calico),
    ("k8s.ovn.org/", Kind::OvnKubernetes),
    ("node.antrea.io/", Kind::Antrea),
    ("network.cilium.io/", Kind::Cilium),
    ("kube-router.io/", Kind::KubeRouter),
];

const PROGRAMS: [(Program, Kind); 10] = [
    (Program::Flannel, Kind::Flannel),
    (Program::Calico, Kind::Calico),
    (Program::Antrea, Kind::Antrea),
    (Program::OvnKubernetes, Kind::OvnKubernetes),
    (Program::AzureCni, Kind::AzureCni),
    (Program::AwsVpcCni, Kind::AwsVpcCni),
    (Program::Cilium, Kind::Cilium),
    (Program::Kindnet, Kind::Kindnet),
    (Program::KubeRouter, Kind::KubeRouter),
    (Program::Weave, Kind::Weave),
];

const DEFINITIONS: [(&str, Kind); 3] =
    [("installations.operator.tigera.io", Kind::Calico), ("antreaagentinfos.crd.antrea.io", Kind::Antrea), ("ciliumnodes.cilium.io", Kind::Cilium)];

/// The networks that the annotations of Linux nodes show.
fn shown(cluster: &Cluster<'_>) -> BTreeSet<Kind> {
    let annotations = cluster.linux.iter().flat_map(|node| node.along("metadata.annotations").keys());
    annotations.filter_map(|key| ANNOTATIONS.iter().find(|(start, _)| key.starts_with(start))).map(|(_, kind)| *kind).collect()
}

/// The networks that run on Linux nodes.
fn running(cluster: &Cluster<'_>) -> BTreeSet<Kind> {
    let programs = cluster.linux_sets().flat_map(|set| set.containers.iter().filter_map(|container| container.program));
    programs.filter_map(|program| PROGRAMS.iter().find(|(known, _)| *known == program)).map(|(_, kind)| *kind).collect()
}

/// Whether Calico only enforces policies, and another program provides the network.
fn policies_only(cluster: &Cluster<'_>) -> bool {
    let backend = cluster.linux_set(Program::Calico).and_then(|set| {
        let container = set.container(Program::Calico)?;
        container.variable("CALICO_NETWORKING_BACKEND", set.namespace(), cluster.objects)?.text()
    });
    let together = cluster.linux_set(Program::Calico).is_some_and(|set| set.runs(Program::Flannel));
    together || backend.as_deref() == Some("none")
}

/// Removes the networks on top of which another network runs.
fn without_helpers(cluster: &Cluster<'_>, mut found: BTreeSet<Kind>) -> BTreeSet<Kind> {
    let of_a_cloud = found.contains(&Kind::AzureCni) || found.contains(&Kind::AwsVpcCni);
    if found.contains(&Kind::Cilium) && of_a_cloud {
        return BTreeSet::from([Kind::Cilium]);
    }
    if of_a_cloud {
        found.remove(&Kind::Calico);
    }
    if found.contains(&Kind::Flannel) && found.contains(&Kind::Calico) && policies_only(cluster) {
        return BTreeSet::from([Kind::Canal]);
    }
    found
}

fn named(kinds: &BTreeSet<Kind>) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the element of a set with exactly one element.
fn only(kinds: &BTreeSet<Kind>) -> Option<Kind> {
    kinds.first().copied().filter(|_| kinds.len() == 1)
}

/// The names of the DaemonSets that provide a network.
fn sets(cluster: &Cluster<'_>, kind: Kind) -> String {
    let made_by = |set: &&Workload<'_>| {
        PROGRAMS
            .iter()
            .any(|(program, of)| set.runs(*program) && (*of == kind || (kind == Kind::Canal && [Kind::Flannel, Kind::Calico].contains(of))))
    };
    cluster.linux_sets().filter(made_by).map(|set| set.object.to_string()).collect::<Vec<_>>().join(", ")
}

pub fn detect(cluster: &Cluster<'_>) -> Detected {
    let (shown, running) = (shown(cluster), running(cluster));
    let known = |kind, from| Detected { kind, from, doubt: String::new() };
    let unknown = |doubt| Detected { kind: Kind::Unknown, from: "nothing that is known".into(), doubt };

    // A network on top of another one, e.g. canal, is visible only in both sets together.
    let all = without_helpers(cluster, shown.union(&running).copied().collect());
    // Annotations remain after a network was replaced: if nodes show several networks, the running one counts.
    let runs = only(&without_helpers(cluster, running.clone())).filter(|kind| shown.contains(kind));
    if let Some(kind) = only(&all).or(runs) {
        let annotated = if shown.is_empty() { None } else { Some(format!("annotations of {}", cluster.nodes())) };
        let parts: Vec<String> = annotated.into_iter().chain(Some(sets(cluster, kind)).filter(|names| !names.is_empty())).collect();
        return known(kind, parts.join(", "));
    }
    if !all.is_empty() {
        return unknown(format!(
            "{} carry annotations of {}, and DaemonSets run {}",
            counted(cluster.linux.len()),
            if shown.is_empty() { "no network".into() } else { named(&shown) },
            if running.is_empty() { "no network".into() } else { named(&running) }
        ));
    }
    let served =
        DEFINITIONS.iter().filter(|(name, _)| cluster.objects.named("apiextensions.k8s.io", "CustomResourceDefinition", None, name).is_some());
    match served.collect::<Vec<_>>().as_slice() {
        [(name, kind)] => known(*kind, format!("CustomResourceDefinition {name}")),
        [] => unknown("no annotation of a node, no DaemonSet and no CustomResourceDefinition is of a network that is known".into()),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            unknown(format!("no node and no DaemonSet tells which network it is, and the cluster serves {}", names.join(" and ")))
        }
    }
}
