//! The pod network of Windows nodes, with the settings that they must share with Linux nodes.

use super::refusal::Refusal;
use crate::components::cidr::{Cidr, listed};
use crate::components::compatible::judge;
use crate::components::finding::is_warning;
use crate::components::linux_side::{Calico, LinuxSide, Settings};
use crate::components::role::{Role, role, runs_already};
use crate::components::workloads::Program;

/// The pod network, and its installer on Windows nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// CAPW installs Flannel.
    Flannel(Flannel),
    /// Calico's operator installs Calico, with VXLAN or with BGP, and leaves kube-proxy to CAPW.
    Calico { pods: Cidr },
}

impl Network {
    /// The network's name in HNS. Calico's name is fixed:
    /// <https://github.com/projectcalico/calico/blob/v3.32.1/node/pkg/lifecycle/startup/startup_windows.go>.
    pub fn name(&self) -> &str {
        match self {
            Self::Flannel(flannel) => &flannel.name,
            Self::Calico { .. } => "Calico",
        }
    }

    /// The addresses of all pods.
    pub const fn pods(&self) -> Cidr {
        match self {
            Self::Flannel(Flannel { pods, .. }) | Self::Calico { pods } => *pods,
        }
    }
}

/// Flannel's network. On Windows it supports IPv4 only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flannel {
    pub backend: Backend,
    /// The name of the network on Windows. flanneld creates the network, and pods and kube-proxy find it by this name.
    pub name: String,
    pub pods: Cidr,
    pub services: Vec<Cidr>,
}

/// The way in which packets reach the pods of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A tunnel: on Windows, an overlay.
    Vxlan { vni: u32 },
    /// Routes over the other nodes: on Windows, a bridge.
    HostGw,
}

impl Backend {
    /// flanneld's default name of its network on Windows.
    /// <https://github.com/flannel-io/flannel/blob/v0.28.10/pkg/backend/hostgw/hostgw_windows.go>, and `vxlan/vxlan_windows.go` beside it.
    fn network_name(self) -> String {
        match self {
            Self::Vxlan { vni } => format!("flannel.{vni}"),
            Self::HostGw => "cbr0".into(),
        }
    }
}

/// Returns the network, or the reason why CAPW installs nothing for it.
pub fn network(side: &LinuxSide) -> Result<Network, Refusal> {
    let role = role(side);
    if !matches!(role, Role::Run | Role::Ask) {
        return Err(Refusal::NotOurs { kind: side.network.kind, role });
    }
    let mut wrong = judge(side).into_iter().filter(|finding| !is_warning(finding.reason));
    if let Some(first) = wrong.next() {
        return Err(Refusal::Wrong { first: Box::new(first), others: wrong.count() });
    }
    match &side.network.settings {
        Settings::Calico(calico) => self::calico(side, calico),
        _ => flannel(side).map(Network::Flannel),
    }
}

fn calico(side: &LinuxSide, calico: &Calico) -> Result<Network, Refusal> {
    if let Some(set) = runs_already(side, Program::KubeProxy) {
        return Err(Refusal::KubeProxyRuns(set.clone()));
    }
    let pool = calico.pool().ok_or_else(|| Refusal::PodNetworkUnknown("no pool of Calico with IPv4".into()))?;
    Ok(Network::Calico { pods: pool.network })
}

fn flannel(side: &LinuxSide) -> Result<Flannel, Refusal> {
    let network = &side.network;
    let backend = match network.mode.as_deref() {
        Some("host-gw") => Backend::HostGw,
        _ => Backend::Vxlan { vni: network.vni.ok_or(Refusal::VniUnknown)? },
    };
    Ok(Flannel { backend, name: name(side, backend)?, pods: pods(side)?, services: ipv4(&side.service_networks) })
}

fn ipv4(networks: &[Cidr]) -> Vec<Cidr> {
    networks.iter().copied().filter(|network| network.is_ipv4()).collect()
}

/// Returns flanneld's name of the network on Windows.
fn name(side: &LinuxSide, backend: Backend) -> Result<String, Refusal> {
    let written = match &side.network.settings {
        Settings::Flannel(flannel) => flannel.config.as_ref().and_then(|config| config.backend.name.clone()),
        _ => None,
    };
    let name = written.unwrap_or_else(|| backend.network_name());
    let is_good = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if is_good { Ok(name) } else { Err(Refusal::BadName(name)) }
}

/// Returns the network of all pods. A node's block is not the whole network: the next node gets another block.
fn pods(side: &LinuxSide) -> Result<Cidr, Refusal> {
    let found = ipv4(&side.network.pod_networks);
    let is_part = |network: &Cidr| side.nodes.iter().any(|node| node.blocks.contains(network));
    match found.as_slice() {
        [network] if !is_part(network) => Ok(*network),
        [] => Err(Refusal::PodNetworkUnknown("nothing".into())),
        _ => Err(Refusal::PodNetworkUnknown(listed(&found))),
    }
}
