//! Calico, installed by its operator or by manifests: pools, BGP, VXLAN, address management.

use std::collections::BTreeSet;

use super::cluster::{Cluster, counted};
use super::family::Family;
use super::felix::{self, GROUP};
use super::operator::{self, Operator};
use super::setting::{Setting, setting};
use super::source::Origin;
use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::{self, Program, Workload};

/// Calico's default block sizes.
const DEFAULT_BLOCK: u32 = 26;
const DEFAULT_BLOCK_V6: u32 = 122;

/// The way in which a pool's packets reach other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    None,
    Vxlan,
    VxlanCrossSubnet,
    Ipip,
    IpipCrossSubnet,
}

impl Encapsulation {
    pub fn is_vxlan(self) -> bool {
        matches!(self, Self::Vxlan | Self::VxlanCrossSubnet)
    }

    pub fn is_ipip(self) -> bool {
        matches!(self, Self::Ipip | Self::IpipCrossSubnet)
    }

    /// The value in an Installation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Vxlan => "VXLAN",
            Self::VxlanCrossSubnet => "VXLANCrossSubnet",
            Self::Ipip => "IPIP",
            Self::IpipCrossSubnet => "IPIPCrossSubnet",
        }
    }
}

/// A pool of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub network: Cidr,
    pub encapsulation: Setting<Encapsulation>,
    /// The prefix length of the blocks that nodes get.
    pub block: Setting<u32>,
}

/// Calico's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Calico {
    /// `None`: Calico was installed by manifests.
    pub operator: Option<Operator>,
    /// The pools in use, or, if none exist yet, the pools that the Installation requests.
    pub pools: Vec<Pool>,
    /// The Installation's encapsulation if a pool in use has another.
    pub asked: Vec<Setting<Encapsulation>>,
    pub bgp: Setting<bool>,
    pub vni: Setting<u32>,
    pub port: Setting<u32>,
    /// The dataplane on Linux, if it is neither iptables nor nftables: `BPF`, `VPP`.
    pub dataplane: Option<Setting<String>>,
    /// `None`: Calico does not manage the addresses.
    pub strict_affinity: Option<Setting<bool>>,
    /// Whether the object of `strict_affinity` exists.
    pub has_ipam_configuration: bool,
    /// The nodes with a VXLAN tunnel; the nodes with an IPIP tunnel follow.
    pub vxlan_nodes: Vec<ObjectRef>,
    pub ipip_nodes: Vec<ObjectRef>,
}

impl Calico {
    /// The pool that Windows nodes use: the first IPv4 pool, which the operator uses too.
    pub fn pool(&self) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.network.is_ipv4())
    }

    /// The encapsulation in use: from the nodes, or else from the pool.
    pub fn in_use(&self) -> Option<Encapsulation> {
        let asked = self.pool().map(|pool| pool.encapsulation.value);
        match (asked, self.vxlan_nodes.is_empty(), self.ipip_nodes.is_empty()) {
            (Some(asked), true, false) if !asked.is_ipip() => Some(Encapsulation::Ipip),
            (Some(asked), false, true) if !asked.is_vxlan() => Some(Encapsulation::Vxlan),
            (None, false, true) => Some(Encapsulation::Vxlan),
            (None, true, false) => Some(Encapsulation::Ipip),
            (asked, _, _) => asked,
        }
    }
}

/// Reads the encapsulation of an IPPool, which has a field for each tunnel.
fn of_pool(spec: &Place<'_>) -> Setting<Encapsulation> {
    const MODES: [&str; 3] = ["Always", "CrossSubnet", "Never"];
    let (vxlan, ipip) = (spec.at("vxlanMode"), spec.at("ipipMode"));
    match (vxlan.one_of(&MODES), ipip.one_of(&MODES)) {
        (Some("Always"), _) => setting(&vxlan, Encapsulation::Vxlan),
        (Some("CrossSubnet"), _) => setting(&vxlan, Encapsulation::VxlanCrossSubnet),
        (_, Some("Always")) => setting(&ipip, Encapsulation::Ipip),
        (_, Some("CrossSubnet")) => setting(&ipip, Encapsulation::IpipCrossSubnet),
        _ => setting(&vxlan, Encapsulation::None),
    }
}

fn pool_in_use(object: &Place<'_>) -> Option<Pool> {
    let spec = object.at("spec");
    let network = spec.at("cidr").network().filter(|_| spec.at("disabled").flag() != Some(true))?;
    Some(Pool { network, encapsulation: of_pool(&spec), block: block(&spec, network) })
}

fn block(spec: &Place<'_>, network: Cidr) -> Setting<u32> {
    let place = spec.at("blockSize");
    setting(&place, place.number(128).unwrap_or(if network.is_ipv4() { DEFAULT_BLOCK } else { DEFAULT_BLOCK_V6 }))
}

/// Reads the pool of an Installation. Without an encapsulation, the operator uses IPIP if BGP is on, which is the default.
fn pool_asked(place: &Place<'_>, bgp: bool) -> Option<Pool> {
    const ALL: [Encapsulation; 5] =
        [Encapsulation::None, Encapsulation::Vxlan, Encapsulation::VxlanCrossSubnet, Encapsulation::Ipip, Encapsulation::IpipCrossSubnet];
    let network = place.at("cidr").network()?;
    let field = place.at("encapsulation");
    let written = field.one_of(&ALL.map(Encapsulation::as_str));
    let default = if bgp && network.is_ipv4() { Encapsulation::Ipip } else { Encapsulation::None };
    let value = written.and_then(|text| ALL.into_iter().find(|known| known.as_str() == text)).unwrap_or(default);
    Some(Pool { network, encapsulation: setting(&field, value), block: block(place, network) })
}

/// Reads whether BGP is on, from the Installation, or else from the backend of calico-node.
fn bgp(cluster: &Cluster<'_>, installation: Option<&Place<'_>>, set: Option<&Workload<'_>>) -> Setting<bool> {
    if let Some(installation) = installation {
        let place = installation.along("spec.calicoNetwork.bgp");
        return setting(&place, place.one_of(&["Enabled", "Disabled"]) != Some("Disabled"));
    }
    let variable = set.and_then(|set| set.container(Program::Calico)?.variable("CALICO_NETWORKING_BACKEND", set.namespace(), cluster.objects));
    match variable {
        Some(place) => setting(&place, !matches!(place.text().as_deref(), Some("vxlan" | "none"))),
        None => {
            let object = set.map_or_else(|| ObjectRef::new("DaemonSet", None, "calico-node"), |set| set.object.clone());
            Setting { object, field: "CALICO_NETWORKING_BACKEND".into(), value: true }
        }
    }
}

/// Reads whether each block belongs to one node.
fn strict_affinity(cluster: &Cluster<'_>, installation: Option<&Place<'_>>) -> (Option<Setting<bool>>, bool) {
    let ipam = installation.and_then(|installation| installation.along("spec.cni.ipam.type").text());
    if ipam.is_some_and(|ipam| ipam != "Calico") {
        return (None, false);
    }
    // The object has one kind in the datastore and another kind in the API.
    let found = ["IPAMConfiguration", "IPAMConfig"].iter().find_map(|kind| cluster.objects.named(GROUP, kind, None, "default"));
    let has = found.is_some();
    let place = found.map(|found| found.along("spec.strictAffinity"));
    let value = place.as_ref().and_then(Place::flag).unwrap_or(false);
    let object = place.map_or_else(|| ObjectRef::new("IPAMConfiguration", None, "default"), |place| place.object);
    (Some(Setting { object, field: "spec.strictAffinity".into(), value }), has)
}

fn nodes_with(cluster: &Cluster<'_>, annotation: &str) -> Vec<ObjectRef> {
    cluster.linux.iter().filter(|node| node.annotation(annotation).text().is_some()).map(|node| node.object.clone()).collect()
}

fn mode(calico: &Calico) -> Option<String> {
    let mode = match calico.in_use()? {
        Encapsulation::Vxlan => "vxlan",
        Encapsulation::VxlanCrossSubnet => "vxlan-cross-subnet",
        Encapsulation::Ipip => "ipip",
        Encapsulation::IpipCrossSubnet => "ipip-cross-subnet",
        Encapsulation::None if calico.bgp.value => "bgp",
        Encapsulation::None => "none",
    };
    Some(mode.into())
}

pub fn read(cluster: &Cluster<'_>) -> Family<Calico> {
    let set = cluster.linux_set(Program::Calico);
    let installation = cluster.objects.named(operator::GROUP, "Installation", None, "default");
    let bgp = bgp(cluster, installation.as_ref(), set);
    let asked: Vec<Pool> = installation
        .iter()
        .flat_map(|found| found.along("spec.calicoNetwork.ipPools").items())
        .filter_map(|pool| pool_asked(&pool, bgp.value))
        .collect();
    // Calico's datastore and its API server contain the same pools.
    let mut networks = BTreeSet::new();
    let pools = cluster.objects.of(GROUP, "IPPool");
    let in_use: Vec<Pool> = pools.iter().filter_map(pool_in_use).filter(|pool| networks.insert(pool.network)).collect();
    let differs = |asked: &&Pool| in_use.iter().any(|pool| pool.network == asked.network && pool.encapsulation.value != asked.encapsulation.value);
    let (strict_affinity, has_ipam_configuration) = strict_affinity(cluster, installation.as_ref());
    let calico = Calico {
        operator: installation.as_ref().map(|installation| operator::read(cluster, installation)),
        asked: asked.iter().filter(differs).map(|pool| pool.encapsulation.clone()).collect(),
        pools: if in_use.is_empty() { asked } else { in_use },
        bgp,
        vni: felix::vni(cluster),
        port: felix::port(cluster),
        dataplane: felix::dataplane(cluster, installation.as_ref()),
        strict_affinity,
        has_ipam_configuration,
        vxlan_nodes: nodes_with(cluster, "projectcalico.org/IPv4VXLANTunnelAddr"),
        ipip_nodes: nodes_with(cluster, "projectcalico.org/IPv4IPIPTunnelAddr"),
    };
    let vxlan = calico.in_use().is_some_and(Encapsulation::is_vxlan);
    let mut from = Vec::new();
    let mut fact = |fact, source: String| from.push(Origin { fact, source });
    if let Some(set) = set {
        fact("version", format!("image of {}", set.object));
    }
    if let Some(pool) = calico.pool() {
        let nodes = calico.vxlan_nodes.len() + calico.ipip_nodes.len();
        let shown = if nodes == 0 { String::new() } else { format!(", annotations of {}", counted(nodes)) };
        fact("mode", format!("{}, {}{shown}", pool.encapsulation.object, pool.encapsulation.field));
    }
    if vxlan {
        fact("vni", format!("{}, {}", calico.vni.object, calico.vni.field));
        fact("port", format!("{}, {}", calico.port.object, calico.port.field));
    }
    let version =
        cluster.version(Program::Calico).or_else(|| installation?.along("status.calicoVersion").text().and_then(|tag| workloads::version(&tag)));
    Family {
        version,
        mode: mode(&calico),
        vni: Some(calico.vni.value).filter(|_| vxlan),
        port: Some(calico.port.value).filter(|_| vxlan),
        from,
        settings: calico,
    }
}
