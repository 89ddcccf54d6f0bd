//! The input of all readers: the objects of a cluster, its Linux nodes and their DaemonSets.

use crate::components::objects::Objects;
use crate::components::place::Place;
use crate::components::workloads::{self, Program, Workload};

/// The input of all readers.
pub(super) struct Cluster<'a> {
    pub(super) objects: &'a Objects<'a>,
    pub(super) linux: Vec<Place<'a>>,
    pub(super) workloads: Vec<Workload<'a>>,
}

impl<'a> Cluster<'a> {
    /// The DaemonSets that run on Linux nodes. A selector that matches no node disables a DaemonSet.
    pub(super) fn linux_sets(&self) -> impl Iterator<Item = &Workload<'a>> {
        let fits = |set: &&Workload<'a>, node: &Place<'_>| {
            let labels = node.along("metadata.labels");
            set.selector.iter().all(|(key, value)| labels.at(key).text().as_ref() == Some(value))
        };
        self.workloads.iter().filter(move |set| !set.windows && (self.linux.is_empty() || self.linux.iter().any(|node| fits(set, node))))
    }

    /// The DaemonSet that runs a program on Linux nodes.
    pub(super) fn linux_set(&self, program: Program) -> Option<&Workload<'a>> {
        self.linux_sets().find(|set| set.runs(program))
    }

    /// The version of a program on Linux nodes, from the tag of its image.
    pub(super) fn version(&self, program: Program) -> Option<String> {
        self.linux_set(program)?.container(program)?.tag.as_deref().and_then(workloads::version)
    }

    /// The number of Linux nodes, for messages.
    pub(super) fn nodes(&self) -> String {
        counted(self.linux.len())
    }

    /// kubeadm's ClusterConfiguration.
    pub(super) fn kubeadm(&self) -> Option<Place<'_>> {
        self.objects.config_map("kube-system", "kubeadm-config")?.at("data").at("ClusterConfiguration").yaml()
    }
}

/// Formats a number of nodes: `1 Linux node`, `3 Linux nodes`.
pub(super) fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 Linux node".into() } else { format!("{nodes} Linux nodes") }
}
