//! The address of the API server, as nodes know it.

use std::net::IpAddr;

use http::uri::Authority;

use super::cluster::Cluster;
use crate::components::workloads::Program;

/// Returns the host and port at which nodes reach the API server without a Service. `None` also if each Linux node has its own proxy.
pub(super) fn api_server(cluster: &Cluster<'_>) -> Option<(String, u16)> {
    let of_kube_proxy = || {
        // The names of the file with kubeadm and with EKS.
        let file = cluster.linux_set(Program::KubeProxy)?.mounted(&["kubeconfig.conf", "kubeconfig"], cluster.objects)?.yaml()?;
        file.at("clusters").items().first()?.along("cluster.server").text()
    };
    let of_kubeadm = || cluster.kubeadm()?.at("controlPlaneEndpoint").text();
    let text = of_kube_proxy().or_else(of_kubeadm)?;
    // kubeadm's port is the default of an address without a port.
    let (authority, port) = text.strip_prefix("https://").map_or((text.as_str(), 6443), |rest| (rest, 443));
    let authority: Authority = authority.trim_end_matches('/').parse().ok()?;
    let host = authority.host().trim_matches(['[', ']']);
    let is_own = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    (!is_own && !host.is_empty()).then(|| (host.to_owned(), authority.port_u16().unwrap_or(port)))
}
