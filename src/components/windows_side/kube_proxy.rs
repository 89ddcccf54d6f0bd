//! kube-proxy on Windows nodes: its configuration, and the same permissions as on Linux nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::network::Network;
use crate::api::bootstrap_config::DSR_WITHOUT_GATE;
use crate::api::kubernetes_version::minor;
use crate::components::linux_side::KubeProxy;

/// The ClusterRole that every API server creates.
pub const ROLE: &str = "system:node-proxier";
pub const BINDING: &str = "capw-kube-proxy";

/// The readiness probe: kube-proxy answers on this port of the node's address once all Services are programmed. It starts after the network exists.
pub fn readiness() -> Value {
    json!({"httpGet": {"path": "/healthz", "port": 10256}, "periodSeconds": 5})
}

/// The arguments of `capw-node.exe` that specify the network to wait for, and the source of kube-proxy's address in it; flanneld's network is the
/// default.
pub const fn arguments(network: &Network) -> &'static [&'static str] {
    match network {
        Network::Flannel(_) => &[],
        Network::Calico { .. } => &["--network=calico"],
    }
}

/// The configuration file, without the fields that only the node knows: its name, the kubeconfig, and the source address (`sourceVip`).
pub fn settings(network: &Network, linux: Option<&KubeProxy>) -> BTreeMap<&'static str, Value> {
    let version = linux.and_then(|proxy| proxy.version.as_deref());
    let mut configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "kernelspace",
        "clusterCIDR": network.pods().to_string(),
        // By default kube-proxy listens on all addresses, and logs a warning about it.
        "nodePortAddresses": ["primary"],
        "winkernel": {"networkName": network.name(), "enableDSR": true},
    });
    let gate = version.and_then(minor).is_some_and(|minor| minor < DSR_WITHOUT_GATE);
    if let (Value::Object(fields), true) = (&mut configuration, gate) {
        fields.insert("featureGates".to_owned(), json!({"WinDSR": true}));
    }
    BTreeMap::from([("config.json", configuration)])
}
