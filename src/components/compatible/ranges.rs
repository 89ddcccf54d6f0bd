//! The checks that apply to every network: address families, overlapping networks, and contradictory sources.

use std::net::IpAddr;

use crate::api::condition::Reason;
use crate::components::cidr::{Cidr, listed};
use crate::components::finding::Finding;
use crate::components::linux_side::{Kind, LinuxSide};
use crate::components::place::ObjectRef;

fn service_range() -> ObjectRef {
    ObjectRef::new("ServiceCIDR", None, "kubernetes")
}

/// Windows does not support pods or Services with IPv6 only.
fn ipv6_only(side: &LinuxSide) -> Option<Finding> {
    let six = |networks: &[Cidr]| !networks.is_empty() && networks.iter().all(|network| !network.is_ipv4());
    let node = side.nodes.iter().find(|node| !node.windows);
    let (object, field, what, networks) = if six(&side.network.pod_networks) {
        let object = node.map_or_else(|| ObjectRef::new("Node", None, "*"), |node| node.object.clone());
        (object, "spec.podCIDRs", "pods", &side.network.pod_networks)
    } else if six(&side.service_networks) {
        (service_range(), "spec.cidrs", "Services", &side.service_networks)
    } else {
        return None;
    };
    Some(Finding {
        reason: Reason::Ipv6Only,
        object,
        field: field.into(),
        message: format!("{what} have IPv6 only ({}), and Windows nodes need IPv4", listed(networks)),
        patch: None,
        remedy: "make a cluster with an IPv4 network for pods and for Services: the families of a cluster cannot be changed later".into(),
    })
}

/// Reports networks that share addresses.
fn overlaps(side: &LinuxSide) -> Vec<Finding> {
    let (pods, services) = (&side.network.pod_networks, &side.service_networks);
    let finding = |object: ObjectRef, field: &str, message: String| Finding {
        reason: Reason::NetworksOverlap,
        object,
        field: field.into(),
        message,
        patch: None,
        remedy: "make a cluster whose networks of pods, Services and nodes are apart: Windows tells by them which packets to translate".into(),
    };
    let mut found = Vec::new();
    for service in services {
        if let Some(pod) = pods.iter().find(|pod| pod.overlaps(*service)) {
            found.push(finding(service_range(), "spec.cidrs", format!("the Service network {service} overlaps the pod network {pod}")));
        }
    }
    let inside = |address: IpAddr| {
        let holds = |network: &&Cidr| network.contains(Cidr::of(address));
        let of_pods = pods.iter().find(holds).map(|network| format!("the pod network {network}"));
        of_pods.or_else(|| services.iter().find(holds).map(|network| format!("the Service network {network}")))
    };
    let nodes = side.nodes.iter().flat_map(|node| node.addresses.iter().map(move |address| (node, *address)));
    let taken = nodes.filter_map(|(node, address)| Some((node, address, inside(address)?))).next();
    found.extend(
        taken.map(|(node, address, network)| {
            finding(node.object.clone(), "status.addresses", format!("the node's address {address} is in {network}"))
        }),
    );
    found
}

/// Without this network, Windows nodes translate packets to Services as if they left the cluster. Other networks have their own settings.
fn service_network_unknown(side: &LinuxSide) -> Option<Finding> {
    let needed = matches!(side.network.kind, Kind::Flannel | Kind::Calico);
    (needed && side.service_networks.is_empty()).then(|| Finding {
        reason: Reason::ServiceNetworkUnknown,
        object: service_range(),
        field: "spec.cidrs".into(),
        message: "no object tells the network of Services: this API server serves no ServiceCIDR, and there is no ClusterConfiguration of kubeadm"
            .into(),
        patch: None,
        remedy: "say it in spec.cluster.serviceNetworks; `kubectl get service kubernetes` shows an address in it".into(),
    })
}

pub fn judge(side: &LinuxSide) -> Vec<Finding> {
    let mut found = overlaps(side);
    found.extend(service_network_unknown(side));
    found.extend(ipv6_only(side));
    found.extend(side.disagreements.iter().map(|disagreement| Finding {
        reason: Reason::SourcesDisagree,
        object: disagreement.object.clone(),
        field: disagreement.field.clone(),
        message: format!("{} {}", disagreement.field, disagreement.message),
        patch: None,
        remedy: "put right the one that is wrong: CAPW goes by what nodes use, other programs may not".into(),
    }));
    found
}
