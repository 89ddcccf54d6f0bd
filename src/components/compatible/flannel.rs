//! Flannel: the settings that flanneld.exe refuses, and the settings that would silently create a different network.

use serde_json::{Map, Value, json};

use super::limits::{LEAST_PODS, LEAST_VNI, MOST_VNI, PORT};
use crate::api::condition::Reason;
use crate::components::finding::{Finding, Patch};
use crate::components::linux_side::{Config, DATA, Flannel, NET_CONF, NODE_ARGUMENTS, Network, Node, Shown, TYPE};
use crate::components::place::ObjectRef;
use crate::components::room::in_part;

/// Returns the way to restart flanneld, so that it uses the configured settings.
fn restart(flannel: &Flannel) -> String {
    match &flannel.daemon_set {
        Some(set) => format!("`kubectl rollout restart {}`", set.for_kubectl()),
        None => "restart the servers and agents of the cluster, one after the other".into(),
    }
}

fn vni_is_right(vni: u32) -> bool {
    (LEAST_VNI..=MOST_VNI).contains(&vni)
}

/// Sets a field. An existing field may have any case, because Go ignores the case.
fn set(fields: &mut Map<String, Value>, key: &str, value: Value) {
    fields.retain(|written, _| !written.eq_ignore_ascii_case(key));
    fields.insert(key.to_owned(), value);
}

/// `net-conf.json` with all problems corrected: each patch replaces the whole text, so it must not undo another patch.
fn fixed(config: &Config) -> Value {
    let mut all = config.value.as_object().cloned().unwrap_or_default();
    let written = all.iter().find(|(key, _)| key.eq_ignore_ascii_case("Backend")).and_then(|(_, value)| value.as_object());
    let mut backend = written.cloned().unwrap_or_default();
    let parts = &config.backend;
    if parts.vni.is_some_and(|vni| !vni_is_right(vni)) {
        set(&mut backend, "VNI", json!(LEAST_VNI));
    }
    if parts.port.is_some_and(|port| port != PORT) {
        set(&mut backend, "Port", json!(PORT));
    }
    for (key, on) in [("DirectRouting", parts.direct_routing), ("GBP", parts.gbp)] {
        if on == Some(true) {
            set(&mut backend, key, json!(false));
        }
    }
    set(&mut all, "Backend", Value::Object(backend));
    let text = serde_json::to_string_pretty(&all).unwrap_or_default() + "\n";
    json!({"data": {NET_CONF: text}})
}

/// Checks the VXLAN settings in the ConfigMap.
fn vxlan(flannel: &Flannel, config: &Config) -> Vec<Finding> {
    let remedy =
        format!("apply the patch, then {}: pods on Linux nodes do not reach those on other nodes until all have restarted", restart(flannel));
    let finding = |reason, key: &str, message| Finding {
        reason,
        object: config.object.clone(),
        field: format!("{}.Backend.{key}", config.field),
        message,
        patch: Some(Patch::Merge(fixed(config))),
        remedy: remedy.clone(),
    };
    let parts = &config.backend;
    let mut found = Vec::new();
    match parts.vni {
        Some(vni) if vni < LEAST_VNI => found.push(finding(
            Reason::VniBelow4096,
            "VNI",
            format!(
                "Linux nodes use VNI {vni}, and Windows has none below {LEAST_VNI}: Windows nodes would be on another network, without any error"
            ),
        )),
        Some(vni) if vni > MOST_VNI => found.push(finding(
            Reason::VniAbove65535,
            "VNI",
            format!("the VNI is {vni}, and Windows routes to other nodes by 16 bits of it: it must be {LEAST_VNI} to {MOST_VNI}"),
        )),
        _ => {}
    }
    if let Some(port) = parts.port.filter(|port| *port != PORT) {
        let message = format!("Linux nodes send VXLAN to port {port}, and Windows has only {PORT}: neither would hear the other");
        found.push(finding(Reason::PortNot4789, "Port", message));
    }
    if parts.direct_routing == Some(true) {
        let message = "Linux nodes of one subnet send packets without the tunnel, and flanneld on Windows does not start with this setting".into();
        found.push(finding(Reason::DirectRouting, "DirectRouting", message));
    }
    if parts.gbp == Some(true) {
        let message = "group policies are in the VXLAN headers, and flanneld on Windows does not start with this setting".into();
        found.push(finding(Reason::GbpOn, "GBP", message));
    }
    found
}

/// Checks a flanneld that is part of another program: only nodes show its settings, which are flags.
fn embedded(flannel: &Flannel, network: &Network) -> Vec<Finding> {
    let Some(node) = flannel.shown.first() else { return Vec::new() };
    let remedy = "start every server and agent with `--flannel-conf=FILE`; FILE is a net-conf.json with \
        \"Backend\": {\"Type\": \"vxlan\", \"VNI\": 4096, \"Port\": 4789}. CAPW does not change how nodes are started";
    let finding =
        |reason, field: String, message| Finding { reason, object: node.object.clone(), field, message, patch: None, remedy: remedy.into() };
    let [arguments, _] = NODE_ARGUMENTS.map(|key| format!("metadata.annotations[{key}]"));
    let mut found = Vec::new();
    if let Some(vni) = network.vni.filter(|vni| *vni < LEAST_VNI) {
        let message = format!(
            "Linux nodes use VNI {vni}, and Windows has none below {LEAST_VNI}: Windows nodes would be on another network, without any error"
        );
        found.push(finding(Reason::VniBelow4096, format!("metadata.annotations[{DATA}].VNI"), message));
    }
    if let Some(port) = network.port.filter(|port| *port != PORT) {
        let message =
            format!("Linux nodes send VXLAN to port {port}, the default of a server that is told nothing else, and Windows has only {PORT}");
        found.push(finding(Reason::PortNot4789, arguments, message));
    } else if network.port.is_none() {
        let message = format!("no object tells the port of VXLAN on Linux nodes, which are started with a file of settings; Windows has only {PORT}");
        found.push(finding(Reason::PortUnknown, arguments, message));
    }
    found
}

/// Reports nodes that do not use the configured settings, or, if none are configured, the settings of most nodes.
fn not_rolled_out(flannel: &Flannel, network: &Network) -> Option<Finding> {
    let backend = flannel.config.as_ref().map(|config| &config.backend);
    let kind = backend.map_or(network.mode.as_ref(), |backend| backend.kind.as_ref())?;
    // flanneld writes only 16 bits of the VNI.
    let vni = backend.map_or(network.vni, |backend| backend.vni).map(|vni| vni & MOST_VNI);
    let other_vni = |shown: Option<u32>| kind == "vxlan" && vni.is_some() && shown.is_some() && shown != vni;
    let others = flannel.shown.iter().filter(|shown| shown.kind != *kind || other_vni(shown.vni));
    let others: Vec<&Shown> = others.collect();
    let first = others.first()?;
    let (asked, used) = match (first.kind == *kind, vni, first.vni) {
        (true, Some(vni), Some(used)) => (format!("VNI {vni}"), format!("VNI {used}")),
        _ => (kind.clone(), first.kind.clone()),
    };
    let field = if first.kind == *kind { DATA } else { TYPE };
    let source = flannel.config.as_ref().map_or_else(|| "most nodes".to_owned(), |config| config.object.to_string());
    Some(Finding {
        reason: Reason::NotRolledOut,
        object: first.object.clone(),
        field: format!("metadata.annotations[{field}]"),
        message: format!("{source} says {asked}, and {} of {} Linux nodes use {used}: {}", others.len(), flannel.shown.len(), some(&others)),
        patch: None,
        remedy: restart(flannel),
    })
}

/// Lists a few of the nodes' names.
fn some(nodes: &[&Shown]) -> String {
    const FEW: usize = 5;
    let names: Vec<&str> = nodes.iter().take(FEW).map(|shown| shown.object.name.as_str()).collect();
    names.join(", ") + if nodes.len() > FEW { ", …" } else { "" }
}

/// Reports a backend that Windows lacks.
fn unsupported(flannel: &Flannel, mode: &str) -> Finding {
    let (object, field) = match (&flannel.config, flannel.shown.first()) {
        (Some(config), _) => (config.object.clone(), format!("{}.Backend.Type", config.field)),
        (None, Some(shown)) => (shown.object.clone(), format!("metadata.annotations[{TYPE}]")),
        (None, None) => (ObjectRef::new("ConfigMap", None, "kube-flannel-cfg"), "data[net-conf.json].Backend.Type".into()),
    };
    Finding {
        reason: Reason::NetworkUnsupported,
        object,
        field,
        message: format!("Flannel's backend is {mode}, and on Windows there are vxlan and host-gw"),
        patch: None,
        remedy: format!(
            "change the backend to vxlan with VNI {LEAST_VNI} and port {PORT}, or to host-gw if all nodes are in one subnet, then {}; \
             what wireguard and ipsec encrypt is then plain, so this is yours to decide",
            restart(flannel)
        ),
    }
}

/// On Windows, flanneld supports IPv4 only, with vxlan and with host-gw.
fn families(flannel: &Flannel) -> Option<Finding> {
    let written = flannel.config.as_ref().filter(|config| config.ipv6);
    let shown = flannel.shown.iter().find(|shown| shown.ipv6);
    let (object, field) = match (written, shown) {
        (Some(config), _) => (config.object.clone(), format!("{}.EnableIPv6", config.field)),
        (None, Some(shown)) => (shown.object.clone(), "metadata.annotations[flannel.alpha.coreos.com/backend-v6-data]".into()),
        (None, None) => return None,
    };
    let (reason, message) = match written.is_some_and(|config| !config.ipv4) {
        true => (Reason::Ipv6Only, "pods have IPv6 only, and Flannel on Windows has IPv4 only"),
        false => (
            Reason::DualStack,
            "pods have IPv4 and IPv6, and Flannel on Windows has IPv4 only: the Linux nodes leave out a node that lacks a family, so its pods would not be reached",
        ),
    };
    let remedy = "give the cluster a pod network of IPv4 alone: a family cannot be taken away while pods use it, so make a new cluster";
    Some(Finding { reason, object, field, message: message.into(), patch: None, remedy: remedy.into() })
}

/// Reports a node's block that is too small for pods.
fn small_blocks(nodes: &[Node]) -> Option<Finding> {
    let blocks = nodes.iter().flat_map(|node| node.blocks.iter().filter(|block| block.is_ipv4()).map(move |block| (node, block)));
    let (node, block) = blocks.into_iter().find(|(_, block)| in_part(**block) < LEAST_PODS)?;
    Some(Finding {
        reason: Reason::BlockTooSmall,
        object: node.object.clone(),
        field: "spec.podCIDR".into(),
        message: format!("a node gets {block}, which has room for {} pods on Windows", in_part(*block)),
        patch: None,
        remedy: "start kube-controller-manager with `--node-cidr-mask-size=24`, and let nodes join again: those that are there keep theirs".into(),
    })
}

pub fn judge(flannel: &Flannel, network: &Network, nodes: &[Node]) -> Vec<Finding> {
    let mut found: Vec<Finding> = not_rolled_out(flannel, network).into_iter().chain(small_blocks(nodes)).collect();
    // The configured backend applies after the next restart, and the nodes show the current backend.
    let written = flannel.config.as_ref().and_then(|config| config.backend.kind.as_deref());
    let kinds = [written, network.mode.as_deref()].into_iter().flatten();
    let (supported, others): (Vec<&str>, Vec<&str>) = kinds.partition(|kind| ["vxlan", "host-gw"].contains(kind));
    if let Some(mode) = others.first() {
        found.push(unsupported(flannel, mode));
    }
    if !supported.is_empty() {
        found.extend(families(flannel));
    }
    match &flannel.config {
        Some(config) if written == Some("vxlan") => found.extend(vxlan(flannel, config)),
        None if flannel.daemon_set.is_none() && network.mode.as_deref() == Some("vxlan") => found.extend(embedded(flannel, network)),
        _ => {}
    }
    found
}
