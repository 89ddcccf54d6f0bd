//! Pod networks and Service networks: several objects contain them, and these objects may contradict each other.

use super::cluster::Cluster;
use super::flannel::NODE_ARGUMENTS;
use super::node::Node;
use super::settings::Settings;
use super::source::{Disagreement, Told};
use crate::components::cidr::{Cidr, listed};
use crate::components::place::Place;

/// The networks, and the object that contains them.
#[derive(Debug, Default)]
pub struct Found {
    pub networks: Vec<Cidr>,
    pub source: Option<String>,
}

/// The default networks of k3s and RKE2.
const K3S_PODS: &str = "10.42.0.0/16";
const K3S_SERVICES: &str = "10.43.0.0/16";

/// Reads a network from the arguments of a k3s or RKE2 server.
fn k3s(cluster: &Cluster<'_>, flag: &str) -> Option<Told> {
    cluster.linux.iter().find_map(|node| {
        let place = NODE_ARGUMENTS.map(|key| node.annotation(key)).into_iter().find(Place::given)?;
        let words: Vec<String> = place.json_list()?.items().iter().filter_map(Place::text).collect();
        let at = words.iter().position(|word| word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))?;
        let value = words.get(at)?.split_once('=').map(|(_, value)| value.to_owned()).or_else(|| words.get(at + 1).cloned())?;
        let networks = Cidr::parse_all(&value);
        if networks.is_none() {
            place.problem(format!("has {flag} {value:?}, expected networks"));
        }
        Some(Told { object: place.object.clone(), field: place.field, networks: networks? })
    })
}

/// The default of k3s and RKE2, if no argument sets a network.
fn k3s_default(cluster: &Cluster<'_>, network: &str) -> Option<Told> {
    let place = cluster.linux.iter().map(|node| node.along("status.nodeInfo.kubeletVersion")).find(|version| {
        let version = version.text().unwrap_or_default();
        version.contains("+k3s") || version.contains("+rke2")
    })?;
    Some(Told { object: place.object, field: format!("{} (its default)", place.field), networks: Cidr::parse_all(network)? })
}

/// Reads OpenShift's pod networks, or its Service networks.
fn openshift(cluster: &Cluster<'_>, pods: bool) -> Option<Told> {
    let network = cluster.objects.named("config.openshift.io", "Network", None, "cluster")?;
    let spec = network.at("spec");
    if !pods {
        return Some(Told::at(&spec.at("serviceNetwork")));
    }
    let place = spec.at("clusterNetwork");
    let networks = place.items().iter().filter_map(|item| item.at("cidr").network()).collect();
    Some(Told { object: place.object.clone(), field: place.field, networks })
}

fn of_kubeadm(cluster: &Cluster<'_>, field: &str) -> Option<Told> {
    Some(Told::at(&cluster.kubeadm()?.along(field)))
}

/// Reads the networks of Cilium's ConfigMap, if Cilium itself allocates the addresses.
fn cilium(cluster: &Cluster<'_>) -> Option<Told> {
    let map = cluster.objects.of("", "ConfigMap").into_iter().find(|map| map.object.name == "cilium-config")?;
    let data = map.at("data");
    data.at("ipam").text().filter(|ipam| ipam.starts_with("cluster-pool"))?;
    // Several networks are separated by spaces.
    let place = data.at("cluster-pool-ipv4-cidr");
    let networks = place.text()?.split_whitespace().filter_map(Cidr::parse).collect();
    Some(Told { object: place.object.clone(), field: place.field, networks })
}

/// Takes the first source that contains a network. A later source that shares no network with it is a disagreement.
fn first(told: impl IntoIterator<Item = Told>, what: &str, disagreements: &mut Vec<Disagreement>) -> Found {
    let mut told = told.into_iter().filter(|told| !told.networks.is_empty());
    let Some(taken) = told.next() else { return Found::default() };
    for other in told {
        let apart = other.networks.iter().find(|network| !taken.networks.iter().any(|taken| taken.overlaps(**network)));
        if let Some(apart) = apart {
            let message = format!("has the {what} {apart}, and {} has {} ({})", taken.object, listed(&taken.networks), taken.field);
            disagreements.push(Disagreement { object: other.object, field: other.field, message });
        }
    }
    Found { source: Some(format!("{}, {}", taken.object, taken.field)), networks: taken.networks }
}

/// Finds the networks that contain all pods.
pub(super) fn pod_networks(cluster: &Cluster<'_>, settings: &Settings, nodes: &[Node], disagreements: &mut Vec<Disagreement>) -> Found {
    let mut told = Vec::new();
    match settings {
        Settings::Flannel(flannel) => told.extend(flannel.config.as_ref().map(|config| Told {
            object: config.object.clone(),
            field: format!("{}.Network", config.field),
            networks: config.networks.clone(),
        })),
        Settings::Calico(calico) => {
            if let Some(pool) = calico.pools.first() {
                let (object, networks) = (pool.encapsulation.object.clone(), calico.pools.iter().map(|pool| pool.network).collect());
                told.push(Told { object, field: "spec.cidr".into(), networks });
            }
        }
        Settings::Ovn(ovn) => told.extend(openshift(cluster, true).into_iter().chain(ovn.pods.clone())),
        _ => told.extend(cilium(cluster)),
    }
    told.extend(of_kubeadm(cluster, "networking.podSubnet"));
    told.extend(k3s(cluster, "--cluster-cidr"));
    // If Calico allocates the addresses itself, the blocks of the Nodes are unused.
    let own_addresses = matches!(settings, Settings::Calico(calico) if calico.strict_affinity.is_some());
    let linux = nodes.iter().filter(|node| !node.windows && !own_addresses);
    let blocks: Vec<(&Node, Cidr)> = linux.flat_map(|node| node.blocks.iter().map(move |block| (node, *block))).collect();
    // The nodes' blocks are in use: a source that contradicts them is not used.
    let outside = |told: &Told| {
        let same_family = |block: Cidr| told.networks.iter().filter(move |network| network.is_ipv4() == block.is_ipv4());
        blocks.iter().find(|(_, block)| same_family(*block).next().is_some() && !same_family(*block).any(|network| network.contains(*block))).copied()
    };
    let (right, wrong): (Vec<Told>, Vec<Told>) = told.into_iter().filter(|told| !told.networks.is_empty()).partition(|told| outside(told).is_none());
    for told in wrong {
        if let Some((node, block)) = outside(&told) {
            let message = format!("is {}, and {} has {block}, which is not in it", listed(&told.networks), node.object);
            disagreements.push(Disagreement { object: told.object, field: told.field, message });
        }
    }
    let default = if right.is_empty() { k3s_default(cluster, K3S_PODS).filter(|told| outside(told).is_none()) } else { None };
    let mut found = first(right.into_iter().chain(default), "pod network", disagreements);
    if let Settings::Ovn(ovn) = settings {
        // Pods on Windows nodes have a separate network.
        found.networks.extend(ovn.hybrid.iter().filter(|_| found.source.is_some()));
    }
    if found.source.is_some() || blocks.is_empty() {
        return found;
    }
    let mut networks: Vec<Cidr> = blocks.iter().map(|(_, block)| *block).collect();
    networks.sort_unstable();
    networks.dedup();
    Found { networks, source: Some(format!("spec.podCIDRs of {}", cluster.nodes())) }
}

/// Finds the networks of the Services' addresses.
pub(super) fn service_networks(cluster: &Cluster<'_>, settings: &Settings, disagreements: &mut Vec<Disagreement>) -> Found {
    let mut told = Vec::new();
    let ranges = cluster.objects.of("networking.k8s.io", "ServiceCIDR");
    if let Some(one) = ranges.first() {
        let networks = ranges.iter().flat_map(|range| range.along("spec.cidrs").networks()).collect();
        told.push(Told { object: one.object.clone(), field: "spec.cidrs".into(), networks });
    }
    told.extend(of_kubeadm(cluster, "networking.serviceSubnet"));
    let installation = cluster.objects.named("operator.tigera.io", "Installation", None, "default");
    told.extend(installation.map(|installation| Told::at(&installation.along("spec.serviceCIDRs"))));
    told.extend(openshift(cluster, false));
    if let Settings::Ovn(ovn) = settings {
        told.extend(ovn.services.clone());
    }
    told.extend(k3s(cluster, "--service-cidr"));
    if told.iter().all(|told| told.networks.is_empty()) {
        told.extend(k3s_default(cluster, K3S_SERVICES));
    }
    first(told, "Service network", disagreements)
}
