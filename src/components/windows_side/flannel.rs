//! Flannel on Windows nodes: the settings of flanneld and the CNI plugins, and the permissions of flanneld.
//!
//! Each program defines its own keys: flanneld the keys of `net-conf.json`; Flannel's CNI plugin and `win-overlay` or `win-bridge` the keys of the
//! conflist; and the Host Compute Network API the keys in `Settings`, which it receives unchanged.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::network::{Backend, Flannel};
use crate::components::compatible::PORT;
use crate::components::linux_side::{Dns, NET_CONF};
use crate::components::plan::labels;

/// The name of flanneld's ClusterRole and of its binding.
pub const ROLE: &str = "capw-flannel";

/// The permissions of flanneld: it reads the subnets of all Nodes, and writes annotations and its own condition.
pub fn cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE, "labels": labels("flannel")},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        ],
    })
}

/// The node's own address in the conflist. `capw-node.exe` fills it in, because it differs on each node.
const NODE: &str = "$(NODE_ADDRESS)/32";

/// The files of flanneld and of the CNI plugins.
pub fn settings(flannel: &Flannel, dns: Option<&Dns>) -> BTreeMap<&'static str, Value> {
    BTreeMap::from([(NET_CONF, net_conf(flannel)), ("cni.conflist", conflist(flannel, dns))])
}

/// The part of flanneld's settings that flanneld reads on Windows. flanneld reads the node's subnet from the Node.
fn net_conf(flannel: &Flannel) -> Value {
    let backend = match flannel.backend {
        Backend::Vxlan { vni } => json!({"Type": "vxlan", "Name": flannel.name, "VNI": vni, "Port": PORT}),
        Backend::HostGw => json!({"Type": "host-gw", "Name": flannel.name}),
    };
    json!({"Network": flannel.pods.to_string(), "Backend": backend})
}

/// Returns the conflist. Flannel's plugin adds the node's subnet, and `win-overlay` the node's address.
fn conflist(flannel: &Flannel, dns: Option<&Dns>) -> Value {
    let policy = |kind: &str, settings: Value| json!({"name": "EndpointPolicy", "value": {"Type": kind, "Settings": settings}});
    let pods = flannel.pods.to_string();
    // In a bridge, pods reach the node in the same way as Services: NAT to the node's own address would break packets to the node itself.
    // <https://github.com/containernetworking/plugins/blob/v1.9.1/plugins/main/windows/win-bridge/sample-v2.conf>
    let node = (flannel.backend == Backend::HostGw).then(|| NODE.to_owned());
    let routed: Vec<String> = flannel.services.iter().map(ToString::to_string).chain(node).collect();
    let inside: Vec<&String> = [&pods].into_iter().chain(&routed).collect();
    // Packets that leave the cluster get the node's address.
    let nat = policy("OutBoundNAT", json!({"Exceptions": inside}));
    // Without these routes, pods send packets for Services into the node's own network.
    let routes = routed.iter().map(|network| policy("SDNRoute", json!({"DestinationPrefix": network, "NeedEncap": true})));
    let policies: Vec<Value> = [nat].into_iter().chain(routes).collect();
    let mut delegate = match flannel.backend {
        Backend::Vxlan { .. } => json!({"type": "win-overlay", "apiVersion": 2, "policies": policies}),
        // With `loopbackDSR`, a pod reaches itself by a Service.
        Backend::HostGw => json!({"type": "win-bridge", "apiVersion": 2, "policies": policies, "loopbackDSR": true}),
    };
    if let (Value::Object(fields), Some(dns)) = (&mut delegate, dns) {
        fields.insert("dns".to_owned(), name_resolution(dns));
    }
    let plugin = json!({"type": "flannel", "capabilities": {"portMappings": true, "dns": true}, "delegate": delegate});
    // The plug-ins for Windows have no CHECK. <https://github.com/containernetworking/cni/blob/main/SPEC.md#configuration-format>
    json!({"cniVersion": "1.0.0", "name": flannel.name, "disableCheck": true, "plugins": [plugin]})
}

/// The name resolution of pods for which the kubelet sets nothing else.
fn name_resolution(dns: &Dns) -> Value {
    let servers: Vec<String> = dns.addresses.iter().filter(|address| address.is_ipv4()).map(ToString::to_string).collect();
    let search: Vec<String> = dns.domain.iter().map(|domain| format!("svc.{domain}")).collect();
    json!({"nameservers": servers, "search": search})
}
