//! The node's own network: time, names, certificates, proxy, firewall, ports, routes. Pod networks belong to the network plug-in.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cel::BRACKETS;
use super::secret::{CaBundleSource, ValueSource};

/// The node's own network.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.caBundle) || !has(self.caBundleFrom)").message("give caBundle or caBundleFrom, not both"))]
pub struct Network {
    /// NTP servers, names or addresses. Default: as in the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(s, isIP(s) || (s.matches('^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$') && !s.matches('^[0-9.]+$')))").message("must be names or addresses, e.g. ntp.example.com"))]
    pub time_servers: Vec<String>,
    /// Seconds by which the clock may differ from that of the API server before the join, 1 to 3600; 0 disables the check. Default: 30.
    #[serde(default = "default_clock_tolerance")]
    #[schemars(range(min = 0, max = 3600))]
    pub clock_tolerance_seconds: i32,
    /// Suffixes that Windows appends to short names, in order. Default: as in the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(s, s.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))").message("must be DNS names in lower case, e.g. example.com"))]
    pub dns_suffixes: Vec<String>,
    /// CA certificates that Windows trusts, PEM, e.g. of proxies, registries and mirrors. At most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    #[x_kube(validation = Rule::new("self.contains('-----BEGIN CERTIFICATE-----')").message("must be certificates in PEM form"))]
    pub ca_bundle: Option<String>,
    /// The CA certificates of `caBundle`, from a ConfigMap or a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_from: Option<CaBundleSource>,
    /// The proxy for the node's own downloads. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// Networks of the nodes, e.g. `10.0.0.0/16`: they bypass the proxy. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 49)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(n, isCIDR(n))").message("must be networks, e.g. 10.0.0.0/16"))]
    pub node_networks: Vec<String>,
    /// Prefix length of the IPv4 pod network of one node, 16 to 30, as kube-controller-manager (`--node-cidr-mask-size`) or the network plug-in assigns it. `maxPods` must fit into it. Default: 24.
    #[serde(default = "default_node_cidr_mask_size", rename = "nodeCIDRMaskSize")]
    #[schemars(range(min = 16, max = 30))]
    pub node_cidr_mask_size: i32,
    /// Ports of the node that are open to all addresses. The kubelet's port always is.
    #[serde(default)]
    pub open_ports: OpenPorts,
    /// Networks from which the node ports of `openPorts` are reached, e.g. the networks of load balancers. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 49)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a) || isCIDR(a))").message("must be addresses or networks, e.g. 10.0.0.0/8"))]
    pub node_port_sources: Vec<String>,
    /// More firewall rules. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub firewall_rules: Vec<FirewallRule>,
    /// Ports for outgoing connections, TCP and UDP. kube-proxy without direct server return takes 64 of them for each Service. Default: those of Windows, 49152 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_ports: Option<PortRange>,
    /// Ports, TCP and UDP, that Windows reserves: only programs that request them by number get them, e.g. the ports of NodePort Services if `dynamicPorts` covers them. At most 8 ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["start".into()]))]
    pub reserved_ports: Vec<PortRange>,
    /// Persistent IPv4 routes. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["destination".into()]))]
    pub routes: Vec<Route>,
    /// The firewall blocks 169.254.169.254, where clouds hand out the machine's credentials, for processes of the node and HostProcess pods. All other pods have a network of their own: they need a network policy. Default: false.
    #[serde(default)]
    pub block_metadata: bool,
}

fn default_clock_tolerance() -> i32 {
    30
}

fn default_node_cidr_mask_size() -> i32 {
    24
}

impl Default for Network {
    fn default() -> Self {
        Self {
            time_servers: Vec::new(),
            clock_tolerance_seconds: default_clock_tolerance(),
            dns_suffixes: Vec::new(),
            ca_bundle: None,
            ca_bundle_from: None,
            proxy: None,
            node_networks: Vec::new(),
            node_cidr_mask_size: default_node_cidr_mask_size(),
            open_ports: OpenPorts::default(),
            node_port_sources: Vec::new(),
            firewall_rules: Vec::new(),
            dynamic_ports: None,
            reserved_ports: Vec::new(),
            routes: Vec::new(),
            block_metadata: false,
        }
    }
}

/// A proxy. Pod, Service and node networks, the cluster's domain, the API server and the machine itself always bypass it.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.urlFrom) != (has(self.http) || has(self.https))").message("give http, https or both, or urlFrom alone"))]
pub struct Proxy {
    /// Proxy for `http://` addresses, e.g. `http://proxy.example.com:3128`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://(_*[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.]_*[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*|\\\\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?/?$')").message("must be http://host:port; with a user and password, take it from a Secret by urlFrom"))]
    #[x_kube(validation = Rule::new(BRACKETS).message("must have an IPv6 address in the brackets, e.g. http://[fd00::1]:3128"))]
    pub http: Option<String>,
    /// Proxy for `https://` addresses. The proxy itself is usually reached over `http://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^https?://(_*[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9_])?([.]_*[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*|\\\\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\\\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?/?$')").message("must be http://host:port; with a user and password, take it from a Secret by urlFrom"))]
    #[x_kube(validation = Rule::new(BRACKETS).message("must have an IPv6 address in the brackets, e.g. http://[fd00::1]:3128"))]
    pub https: Option<String>,
    /// The address of the proxy for both, with user and password, from a Secret. Only containerd, the kubelet and the downloads of `spec.programs` get it; Windows itself and other programs of the node do not use the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_from: Option<ValueSource>,
    /// More names, addresses and networks that bypass the proxy; `.example.com` stands for all its subdomains. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(s, s.matches('^[A-Za-z0-9.*][-A-Za-z0-9.*:/]*$'))").message("must be names, addresses or networks, one per entry, e.g. .example.com or 10.0.0.0/8"))]
    pub no_proxy: Vec<String>,
}

/// Ports of the node that are open to all addresses.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenPorts {
    /// 4789/UDP, which overlay networks of Windows use (Flannel, Calico, OVN). Default: true.
    pub vxlan: bool,
    /// 30000 to 32767, TCP and UDP, for Services of type NodePort. Default: true.
    pub node_ports: bool,
    /// 10256/TCP, where load balancers check the health of kube-proxy. Default: true.
    pub kube_proxy_health: bool,
    /// 9182/TCP, metrics of windows_exporter. Default: false.
    pub exporter: bool,
}

impl Default for OpenPorts {
    fn default() -> Self {
        Self { vxlan: true, node_ports: true, kube_proxy_health: true, exporter: false }
    }
}

/// A firewall rule, for every profile.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.protocol != 'Any' || !has(self.ports)").message("ports belong to TCP or UDP: name the protocol"))]
pub struct FirewallRule {
    /// Name of the rule: lower case letters, digits and `-`, at most 20.
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("must be lower case letters, digits and -"))]
    pub name: String,
    /// Direction of the traffic. Default: `Inbound`.
    #[serde(default)]
    pub direction: FirewallDirection,
    /// What the rule does. Rules that block take precedence over rules that allow. Default: `Allow`.
    #[serde(default)]
    pub action: FirewallAction,
    /// Protocol. Default: `TCP`.
    #[serde(default)]
    pub protocol: FirewallProtocol,
    /// Ports of the node for inbound rules, of the other end for outbound rules: `8080` or `8000-8100`. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 11)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(p, p.matches('^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(-([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$') && (!p.contains('-') || int(p.split('-')[0]) <= int(p.split('-')[1])))").message("must be ports from 1 to 65535 or ranges of them, the lower one first, e.g. 8080 or 8000-8100"))]
    pub ports: Vec<String>,
    /// Addresses or networks at the other end. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 49)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a) || isCIDR(a))").message("must be addresses or networks, e.g. 10.0.0.0/8"))]
    pub remote_addresses: Vec<String>,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum FirewallDirection {
    #[default]
    Inbound,
    Outbound,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum FirewallAction {
    #[default]
    Allow,
    Block,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum FirewallProtocol {
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "UDP")]
    Udp,
    Any,
}

/// A range of ports.
#[derive(KubeSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.start + self.count <= 65536").message("start and count together must not exceed 65536"))]
pub struct PortRange {
    /// The first port, 1025 to 65535.
    #[schemars(range(min = 1025, max = 65535))]
    pub start: i32,
    /// Number of ports. Windows requires at least 255 for outgoing connections.
    #[schemars(range(min = 1, max = 64511))]
    pub count: i32,
}

/// A persistent route.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The network, e.g. `10.20.0.0/16`.
    #[schemars(length(min = 9, max = 18))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self) == cidr(self).masked()").message("must be an IPv4 network without bits below its prefix, e.g. 10.20.0.0/16"))]
    pub destination: String,
    /// Gateway, e.g. `192.168.1.1`.
    #[schemars(length(min = 7, max = 15))]
    #[x_kube(validation = Rule::new("isIP(self) && ip(self).family() == 4").message("must be an IPv4 address"))]
    pub gateway: String,
    /// Metric, 1 to 9999; the route with the lower metric is used. Default: 1.
    #[serde(default = "default_metric")]
    #[schemars(range(min = 1, max = 9999))]
    pub metric: i32,
}

fn default_metric() -> i32 {
    1
}
