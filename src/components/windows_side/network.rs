//! The pod network of Windows nodes, with the settings that they must share with Linux nodes.

use super::refusal::Refusal;
use crate::components::cidr::{Cidr, listed};
use crate::components::compatible::judge;
use crate::components::finding::is_warning;
use crate::components::linux_side::{Calico, LinuxSide, Settings};
use crate::components::role::{Role, role, runs_already};
use crate::components::workloads::Program;

/// The pod network, and who brings it to Windows nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// CAPW does.
    Flannel(Flannel),
    /// Its operator does, with VXLAN or with BGP, and leaves kube-proxy to CAPW.
    Calico { pods: Cidr },
}

impl Network {
    /// Its name in HNS. That of Calico is fixed:
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

/// Flannel's network. On Windows it has IPv4 only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flannel {
    pub backend: Backend,
    /// Of the network on Windows, which flanneld makes, and pods and kube-proxy find by it.
    pub name: String,
    pub pods: Cidr,
    pub services: Vec<Cidr>,
}

/// How packets get to the pods of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By a tunnel: on Windows, an overlay.
    Vxlan { vni: u32 },
    /// By routes over the other nodes: on Windows, a bridge.
    HostGw,
}

impl Backend {
    /// As flanneld names its network on Windows where nothing is written.
    /// <https://github.com/flannel-io/flannel/blob/v0.28.10/pkg/backend/hostgw/hostgw_windows.go>, and `vxlan/vxlan_windows.go` beside it.
    fn network_name(self) -> String {
        match self {
            Self::Vxlan { vni } => format!("flannel.{vni}"),
            Self::HostGw => "cbr0".into(),
        }
    }
}

/// The network, or why CAPW brings nothing for it.
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

/// As flanneld names it on Windows.
fn name(side: &LinuxSide, backend: Backend) -> Result<String, Refusal> {
    let written = match &side.network.settings {
        Settings::Flannel(flannel) => flannel.config.as_ref().and_then(|config| config.backend.name.clone()),
        _ => None,
    };
    let name = written.unwrap_or_else(|| backend.network_name());
    let is_good = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if is_good { Ok(name) } else { Err(Refusal::BadName(name)) }
}

/// The network of all pods. What nodes have of it is not the whole: the next node gets another part.
fn pods(side: &LinuxSide) -> Result<Cidr, Refusal> {
    let found = ipv4(&side.network.pod_networks);
    let is_part = |network: &Cidr| side.nodes.iter().any(|node| node.blocks.contains(network));
    match found.as_slice() {
        [network] if !is_part(network) => Ok(*network),
        [] => Err(Refusal::PodNetworkUnknown("nothing".into())),
        _ => Err(Refusal::PodNetworkUnknown(listed(&found))),
    }
}
