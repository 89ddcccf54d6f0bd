//! kube-proxy as a service of Windows.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// kube-proxy as a service of Windows, with the certificate of the node. It waits until the network plug-in has made its network.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.sourceVIP) == (self.networkType == 'Overlay')").message("sourceVIP is needed for networkType Overlay, and means nothing for L2Bridge: give it, or remove it"))]
pub struct KubeProxy {
    /// Name of the network of Windows that pods attach to, as the network plug-in makes it, e.g. `cbr0`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._]*$')").message("must be the name of a network: letters, digits, -, . and _, e.g. cbr0"))]
    pub network_name: String,
    /// Kind of that network. Default: L2Bridge.
    #[serde(default)]
    pub network_type: ProxyNetwork,
    /// Address from which pods of other nodes are reached through a Service: one of the node's own pod network that no pod has. Of an
    /// overlay only, and of one machine: with a template, run kube-proxy as a HostProcess DaemonSet, which finds it out on the node.
    #[serde(default, rename = "sourceVIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9.]+|[0-9a-fA-F:]+)$')").message("must be an IP address, e.g. 10.244.3.2"))]
    pub source_vip: Option<String>,
    /// Whether answers go directly to who asked. Without it kube-proxy takes 64 ports of the node for each Service. Default: true.
    #[serde(default = "yes")]
    pub direct_server_return: bool,
    /// Whether health checks that a load balancer sends to the address of a Service are answered; not on Windows Server 2019. Default: false.
    #[serde(default)]
    pub forward_health_check_vip: bool,
}

fn yes() -> bool {
    true
}

/// A kind of network of Windows.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ProxyNetwork {
    /// Pods are on the node's own network, or routed.
    #[default]
    L2Bridge,
    /// VXLAN.
    Overlay,
}
