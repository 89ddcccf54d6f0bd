//! The nodes of a cluster, Linux and Windows.

use std::net::IpAddr;

use super::ovn;
use crate::api::name::ProviderId;
use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Place};

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub object: ObjectRef,
    pub windows: bool,
    pub addresses: Vec<IpAddr>,
    /// The node's blocks of the pod network.
    pub blocks: Vec<Cidr>,
    /// The keys of the node's taints.
    pub taints: Vec<String>,
    /// Whether CAPW created the node, according to its provider ID.
    pub is_ours: bool,
}

/// Whether a node runs Windows. Linux is the default.
pub fn is_windows(node: &Place<'_>) -> bool {
    let label = || node.at("metadata").at("labels").at("kubernetes.io/os").text();
    node.along("status.nodeInfo.operatingSystem").text().or_else(label).as_deref() == Some("windows")
}

pub(super) fn node(place: &Place<'_>) -> Node {
    let internal = place.along("status.addresses").items().into_iter().filter(|address| address.at("type").text().as_deref() == Some("InternalIP"));
    let addresses = internal.filter_map(|address| {
        let address = address.at("address");
        let text = address.text()?;
        text.parse().map_err(|_| address.problem(format!("is {text:?}, expected an address"))).ok()
    });
    let taints = place.along("spec.taints").items().into_iter().filter_map(|taint| taint.at("key").text());
    Node {
        object: place.object.clone(),
        windows: is_windows(place),
        addresses: addresses.collect(),
        blocks: blocks(place),
        taints: taints.collect(),
        is_ours: place.along("spec.providerID").text().is_some_and(|id| ProviderId::parse(&id).is_ok()),
    }
}

/// The blocks of the pod network that a node has. OVN-Kubernetes does not use the blocks in the Node's spec.
fn blocks(node: &Place<'_>) -> Vec<Cidr> {
    let of_ovn = node.annotation(ovn::SUBNETS);
    if of_ovn.given() {
        return of_ovn.json().map(|subnets| subnets.at("default").networks()).unwrap_or_default();
    }
    let spec = node.at("spec");
    match spec.at("podCIDRs").networks() {
        blocks if blocks.is_empty() => spec.at("podCIDR").network().into_iter().collect(),
        blocks => blocks,
    }
}
