//! The settings of Flannel with VXLAN that Windows nodes must share with Linux nodes.

use super::Refusal;
use crate::components::cidr::{Cidr, listed};
use crate::components::compatible::judge;
use crate::components::finding::is_warning;
use crate::components::linux_side::{LinuxSide, Settings};
use crate::components::role::{Role, role};

/// Flannel's network with VXLAN. Overlay networks of Windows have IPv4 only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// Of the network on Windows, which flanneld makes, and pods and kube-proxy find by it.
    pub name: String,
    pub vni: u32,
    pub pods: Cidr,
    pub services: Vec<Cidr>,
}

/// The settings, or why Windows nodes cannot have them from CAPW.
pub fn overlay(side: &LinuxSide) -> Result<Overlay, Refusal> {
    let network = &side.network;
    let role = role(side);
    if role != Role::Run {
        return Err(Refusal::NotOurs { kind: network.kind, role });
    }
    let mut wrong = judge(side).into_iter().filter(|finding| !is_warning(finding.reason));
    if let Some(first) = wrong.next() {
        return Err(Refusal::Wrong { first: Box::new(first), others: wrong.count() });
    }
    match network.mode.as_deref() {
        Some("vxlan") => {}
        mode => return Err(Refusal::NotYet(mode.unwrap_or("unknown").to_owned())),
    }
    let vni = network.vni.ok_or(Refusal::VniUnknown)?;
    Ok(Overlay { name: name(side, vni)?, vni, pods: pods(side)?, services: ipv4(&side.service_networks) })
}

fn ipv4(networks: &[Cidr]) -> Vec<Cidr> {
    networks.iter().copied().filter(|network| network.is_ipv4()).collect()
}

/// As flanneld names it on Windows.
fn name(side: &LinuxSide, vni: u32) -> Result<String, Refusal> {
    let written = match &side.network.settings {
        Settings::Flannel(flannel) => flannel.config.as_ref().and_then(|config| config.backend.name.clone()),
        _ => None,
    };
    let name = written.unwrap_or_else(|| format!("flannel.{vni}"));
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
