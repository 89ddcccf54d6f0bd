//! The known facts about the Linux side of a cluster.

use super::dns::Dns;
use super::kind::Kind;
use super::kube_proxy::KubeProxy;
use super::node::Node;
use super::settings::Settings;
use super::source::{Disagreement, Origin};
use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Unreadable};
use crate::components::workloads::Program;

/// The Linux side of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct LinuxSide {
    pub network: Network,
    /// `None`: no DaemonSet exists; another program replaces kube-proxy, or kube-proxy is part of the node's own programs.
    pub kube_proxy: Option<KubeProxy>,
    pub service_networks: Vec<Cidr>,
    pub dns: Option<Dns>,
    /// The Linux and Windows nodes.
    pub nodes: Vec<Node>,
    /// The DaemonSets for Windows nodes that do not belong to CAPW.
    pub on_windows: Vec<OnWindows>,
    /// Sources that contradict the chosen values.
    pub disagreements: Vec<Disagreement>,
    pub unreadable: Vec<Unreadable>,
}

/// The pod network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub kind: Kind,
    /// The version, e.g. `0.28.9`.
    pub version: Option<String>,
    /// The mode in the network's own terms: `vxlan`, `host-gw`, `encap`.
    pub mode: Option<String>,
    /// The VNI of VXLAN on Linux nodes.
    pub vni: Option<u32>,
    /// The port of the tunnel on Linux nodes.
    pub port: Option<u32>,
    pub pod_networks: Vec<Cidr>,
    /// The sources of all facts.
    pub from: Vec<Origin>,
    pub settings: Settings,
}

/// A DaemonSet for Windows nodes that does not belong to CAPW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnWindows {
    pub object: ObjectRef,
    pub programs: Vec<Program>,
}
