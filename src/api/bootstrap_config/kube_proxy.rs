//! kube-proxy as a Windows service.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Kubernetes minor from which direct server return needs no feature gate; the gate is locked from 1.34 on.
pub const DSR_WITHOUT_GATE: u32 = 33;

/// kube-proxy as a Windows service with the node's certificate. It waits until the network plug-in has created its network.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.sourceVIP) == (self.networkType == 'Overlay')").message("sourceVIP is needed for networkType Overlay, and means nothing for L2Bridge: give it, or remove it"))]
pub struct KubeProxy {
    /// Name of the Windows network that pods attach to, as the network plug-in creates it, e.g. `cbr0`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9._]*$')").message("must be the name of a network: letters, digits, -, . and _, e.g. cbr0"))]
    pub network_name: String,
    /// Type of that network. Default: L2Bridge.
    #[serde(default)]
    pub network_type: ProxyNetwork,
    /// Source address of traffic from Services to pods on other nodes: an unused address of the node's own pod network. Only for an overlay,
    /// and for one machine: with a template, run kube-proxy as a HostProcess DaemonSet, which finds the address on the node.
    #[serde(default, rename = "sourceVIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    #[x_kube(validation = Rule::new("isIP(self)").message("must be an IP address, e.g. 10.244.3.2"))]
    pub source_vip: Option<String>,
    /// Send responses directly to the client (direct server return). Without it kube-proxy takes 64 ports of the node for each Service. Default: true.
    #[serde(default = "yes")]
    pub direct_server_return: bool,
    /// Whether health checks of a load balancer to the address of a Service are answered; not on Windows Server 2019. Default: false.
    #[serde(default)]
    pub forward_health_check_vip: bool,
}

fn yes() -> bool {
    true
}

/// A type of Windows network.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum ProxyNetwork {
    /// Pods are on the node's own network, or routed.
    #[default]
    L2Bridge,
    /// VXLAN.
    Overlay,
}
