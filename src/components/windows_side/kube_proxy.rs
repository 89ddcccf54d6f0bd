//! kube-proxy on Windows nodes: its configuration, and the rights that it has on Linux nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::network::Network;
use crate::api::bootstrap_config::DSR_WITHOUT_GATE;
use crate::api::name::minor;
use crate::components::linux_side::KubeProxy;

/// The ClusterRole that every API server makes.
pub const ROLE: &str = "system:node-proxier";
pub const BINDING: &str = "capw-kube-proxy";

/// It answers on this port of the node's address when it has programmed all Services. It starts only once the network is there.
pub fn readiness() -> Value {
    json!({"httpGet": {"path": "/healthz", "port": 10256}, "periodSeconds": 5})
}

/// How `capw-node.exe` is told which network to wait for, and where kube-proxy's address in it comes from; flanneld's is what it expects.
pub const fn arguments(network: &Network) -> &'static [&'static str] {
    match network {
        Network::Flannel(_) => &[],
        Network::Calico { .. } => &["--network=calico"],
    }
}

/// Its file, without what only the node knows: its name, the kubeconfig, and the address that it sends from (`sourceVip`).
pub fn settings(network: &Network, linux: Option<&KubeProxy>) -> BTreeMap<&'static str, Value> {
    let version = linux.and_then(|proxy| proxy.version.as_deref());
    let mut configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "kernelspace",
        "clusterCIDR": network.pods().to_string(),
        // Otherwise it listens on all addresses, and says so in its log as a warning.
        "nodePortAddresses": ["primary"],
        "winkernel": {"networkName": network.name(), "enableDSR": true},
    });
    let gate = version.and_then(minor).is_some_and(|minor| minor < DSR_WITHOUT_GATE);
    if let (Value::Object(fields), true) = (&mut configuration, gate) {
        fields.insert("featureGates".to_owned(), json!({"WinDSR": true}));
    }
    BTreeMap::from([("config.json", configuration)])
}
