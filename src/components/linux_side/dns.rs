//! Name resolution in the cluster.

use std::net::IpAddr;

use super::cluster::Cluster;
use crate::components::place::Place;

/// The Service of name resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    pub addresses: Vec<IpAddr>,
    /// The domain, e.g. `cluster.local`.
    pub domain: Option<String>,
}

pub(super) fn dns(cluster: &Cluster<'_>) -> Option<Dns> {
    let services = cluster.objects.of("", "Service");
    let labelled = |service: &&Place<'_>| service.at("metadata").at("labels").at("k8s-app").text().as_deref() == Some("kube-dns");
    let named = |service: &&Place<'_>| service.object.namespace.as_deref() == Some("kube-system") && service.object.name == "kube-dns";
    let service = services.iter().find(named).or_else(|| services.iter().find(labelled))?;
    let spec = service.at("spec");
    let addresses: Vec<IpAddr> = match spec.at("clusterIPs").items() {
        items if items.is_empty() => spec.at("clusterIP").text().and_then(|text| text.parse().ok()).into_iter().collect(),
        items => items.iter().filter_map(|item| item.text()?.parse().ok()).collect(),
    };
    if addresses.is_empty() {
        spec.at("clusterIP").problem("is no address");
    }
    let of_kubelet = || cluster.objects.config_map("kube-system", "kubelet-config")?.at("data").at("kubelet").yaml()?.at("clusterDomain").text();
    let of_kubeadm = || cluster.kubeadm()?.along("networking.dnsDomain").text();
    Some(Dns { addresses, domain: of_kubelet().or_else(of_kubeadm) })
}
