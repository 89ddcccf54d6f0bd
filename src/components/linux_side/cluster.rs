//! The facts that do not depend on the network: kube-proxy and name resolution.

use std::net::IpAddr;

use http::uri::Authority;

use super::Cluster;
use crate::components::place::Place;
use crate::components::workloads::Program;

/// kube-proxy on Linux nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeProxy {
    /// The version, e.g. `v1.36.3`.
    pub version: Option<String>,
    /// `iptables`, `ipvs` or `nftables`; `None`: its configuration cannot be read.
    pub mode: Option<&'static str>,
    /// The source of the mode.
    pub from: String,
}

/// The Service of name resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    pub addresses: Vec<IpAddr>,
    /// The domain, e.g. `cluster.local`.
    pub domain: Option<String>,
}

const MODES: [&str; 3] = ["iptables", "ipvs", "nftables"];
/// kube-proxy's default mode on Linux, in all versions so far.
const DEFAULT_MODE: &str = "iptables";

/// Returns the mode, or kube-proxy's default if none is set.
fn mode(place: &Place<'_>) -> Option<&'static str> {
    let empty = !place.given() || place.value().as_str() == Some("");
    if empty { Some(DEFAULT_MODE) } else { place.one_of(&MODES) }
}

pub(super) fn kube_proxy(cluster: &Cluster<'_>) -> Option<KubeProxy> {
    let set = cluster.linux_set(Program::KubeProxy)?;
    let container = set.container(Program::KubeProxy)?;
    let version = container.tag.as_ref().filter(|tag| tag.starts_with('v')).map(|tag| tag.split('-').next().unwrap_or(tag).to_owned());
    // The ConfigMap's keys with kubeadm and with EKS.
    let (mode, from) = match set.mounted(&["config.conf", "config"], cluster.objects) {
        Some(text) => (text.yaml().and_then(|config| mode(&config.at("mode"))), format!("{}, {}", text.object, text.field)),
        None => {
            let given = container.argument("--proxy-mode").unwrap_or_default();
            let known = MODES.iter().find(|mode| given == **mode).copied().or(given.is_empty().then_some(DEFAULT_MODE));
            (known, format!("arguments of {}", set.object))
        }
    };
    Some(KubeProxy { version, mode, from })
}

/// Returns kubeadm's ClusterConfiguration.
pub(super) fn kubeadm<'a>(cluster: &'a Cluster<'_>) -> Option<Place<'a>> {
    cluster.objects.config_map("kube-system", "kubeadm-config")?.at("data").at("ClusterConfiguration").yaml()
}

/// Returns the host and port at which nodes reach the API server without a Service. `None` also if each Linux node has its own proxy.
pub(super) fn api_server(cluster: &Cluster<'_>) -> Option<(String, u16)> {
    let of_kube_proxy = || {
        // The names of the file with kubeadm and with EKS.
        let file = cluster.linux_set(Program::KubeProxy)?.mounted(&["kubeconfig.conf", "kubeconfig"], cluster.objects)?.yaml()?;
        file.at("clusters").items().first()?.along("cluster.server").text()
    };
    let of_kubeadm = || kubeadm(cluster)?.at("controlPlaneEndpoint").text();
    let text = of_kube_proxy().or_else(of_kubeadm)?;
    // kubeadm's port is the default of an address without a port.
    let (authority, port) = text.strip_prefix("https://").map_or((text.as_str(), 6443), |rest| (rest, 443));
    let authority: Authority = authority.trim_end_matches('/').parse().ok()?;
    let host = authority.host().trim_matches(['[', ']']);
    let is_own = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    (!is_own && !host.is_empty()).then(|| (host.to_owned(), authority.port_u16().unwrap_or(port)))
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
    let of_kubeadm = || kubeadm(cluster)?.along("networking.dnsDomain").text();
    Some(Dns { addresses, domain: of_kubelet().or_else(of_kubeadm) })
}
