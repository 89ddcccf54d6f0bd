//! Flannel: its ConfigMap, and the annotations that flanneld writes on each node.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{Cluster, counted};
use super::family::Family;
use super::source::Origin;
use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::Program;

/// The key of Flannel's ConfigMap.
pub const NET_CONF: &str = "net-conf.json";
/// flanneld's defaults on Linux.
const DEFAULT_VNI: u32 = 1;
const DEFAULT_PORT: u32 = 8472;
/// The highest number of 24 bits.
const MOST_VNI: u32 = (1 << 24) - 1;

/// The annotations of a node.
pub const TYPE: &str = "flannel.alpha.coreos.com/backend-type";
pub const DATA: &str = "flannel.alpha.coreos.com/backend-data";
const DATA_V6: &str = "flannel.alpha.coreos.com/backend-v6-data";
/// The annotations in which k3s and RKE2 write the arguments of a server or agent.
pub const NODE_ARGUMENTS: [&str; 2] = ["k3s.io/node-args", "rke2.io/node-args"];

/// Flannel's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Flannel {
    /// `None`: flanneld is part of another program, and only nodes show its settings.
    pub daemon_set: Option<ObjectRef>,
    /// `None`: no ConfigMap exists, or it is unreadable.
    pub config: Option<Config>,
    /// The annotations of each node.
    pub shown: Vec<Shown>,
}

/// The content of `net-conf.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub object: ObjectRef,
    /// The field with the text.
    pub field: String,
    /// The whole JSON value.
    pub value: Value,
    pub networks: Vec<Cidr>,
    pub ipv4: bool,
    pub ipv6: bool,
    pub backend: Backend,
}

/// The part `Backend` of `net-conf.json`. `None` is unreadable; a missing setting has flanneld's default.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    pub kind: Option<String>,
    /// The name of the network on Windows; `None`: flanneld derives the name from the VNI.
    pub name: Option<String>,
    pub vni: Option<u32>,
    pub port: Option<u32>,
    pub direct_routing: Option<bool>,
    pub gbp: Option<bool>,
}

/// The annotations that flanneld wrote on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub object: ObjectRef,
    pub kind: String,
    /// The lowest 16 bits of the VNI: flanneld writes only these.
    pub vni: Option<u32>,
    pub ipv6: bool,
}

/// Returns the value, or the default if none is set; `None` is unreadable.
fn or<'a, T>(place: &Place<'a>, read: impl Fn(&Place<'a>) -> Option<T>, default: T) -> Option<T> {
    if place.given() { read(place) } else { Some(default) }
}

fn config(text: &Place<'_>) -> Option<Config> {
    let place = text.json()?;
    let backend = place.in_any_case("Backend");
    let field = |name: &str| backend.in_any_case(name);
    // flanneld's default backend is udp, and flanneld ignores the case.
    let kind = or(&field("Type"), |place| Some(place.text()?.to_ascii_lowercase()), "udp".into());
    let networks = ["Network", "IPv6Network"].into_iter().filter_map(|name| place.in_any_case(name).network());
    Some(Config {
        object: text.object.clone(),
        field: text.field.clone(),
        networks: networks.collect(),
        ipv4: or(&place.in_any_case("EnableIPv4"), Place::flag, true).unwrap_or(true),
        ipv6: or(&place.in_any_case("EnableIPv6"), Place::flag, false).unwrap_or(false),
        backend: Backend {
            kind,
            name: field("Name").text(),
            vni: or(&field("VNI"), |place| place.number(MOST_VNI), DEFAULT_VNI),
            port: or(&field("Port"), |place| place.number(u32::from(u16::MAX)), DEFAULT_PORT),
            direct_routing: or(&field("DirectRouting"), Place::flag, false),
            gbp: or(&field("GBP"), Place::flag, false),
        },
        value: place.value().clone(),
    })
}

fn shown(node: &Place<'_>) -> Option<Shown> {
    let kind = node.annotation(TYPE).text()?;
    let given = |key| node.annotation(key).text().filter(|text| text != "null");
    let data = given(DATA).and_then(|_| node.annotation(DATA).json());
    let vni = data.filter(|_| kind == "vxlan").and_then(|data| data.in_any_case("VNI").number(MOST_VNI));
    Some(Shown { object: node.object.clone(), kind, vni, ipv6: given(DATA_V6).is_some() })
}

/// Returns the most frequent value; if several are equally frequent, the first.
fn most<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, (usize, Reverse<usize>)> = BTreeMap::new();
    for (index, value) in values.enumerate() {
        counts.entry(value).or_insert((0, Reverse(index))).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, order)| *order).map(|(value, _)| value)
}

/// Reads Flannel's key of the DaemonSet's ConfigMaps.
fn written(cluster: &Cluster<'_>) -> Option<Config> {
    let set = cluster.linux_set(Program::Flannel)?;
    if let Some(text) = set.mounted(&[NET_CONF], cluster.objects) {
        return config(&text);
    }
    let name = set.config_maps.first().map_or("kube-flannel-cfg", String::as_str);
    let missing = ObjectRef::new("ConfigMap", set.object.namespace.as_deref(), name);
    cluster.objects.problem(&missing, &format!("data[{NET_CONF}]"), format!("is missing, and {} reads its settings there", set.object));
    None
}

pub fn read(cluster: &Cluster<'_>) -> Family<Flannel> {
    let set = cluster.linux_set(Program::Flannel);
    let config = written(cluster);
    let shown: Vec<Shown> = cluster.linux.iter().filter_map(shown).collect();
    let arguments = cluster.linux.iter().flat_map(|node| NODE_ARGUMENTS.map(|key| node.annotation(key).text())).flatten();
    let own_file = arguments.into_iter().any(|text| text.contains("--flannel-conf"));
    let backend = config.as_ref().map(|config| &config.backend);

    let seen = most(shown.iter().map(|shown| (shown.kind.clone(), shown.vni)));
    let mode = seen.as_ref().map(|(kind, _)| kind.clone()).or_else(|| backend.and_then(|backend| backend.kind.clone()));
    let vxlan = mode.as_deref() == Some("vxlan");
    let shown_vni = seen.as_ref().and_then(|(_, vni)| *vni);
    let vni = shown_vni.or_else(|| backend.and_then(|backend| backend.vni)).filter(|_| vxlan);
    // Nodes do not show the port. A flanneld that is part of k3s uses its default, unless nodes were started with a settings file.
    let port = match backend {
        Some(backend) => backend.port,
        None if set.is_none() && !own_file => Some(DEFAULT_PORT),
        None => None,
    };
    let port = port.filter(|_| vxlan);

    let nodes = |key| format!("annotation {key} of {}", counted(shown.len()));
    let file = config.as_ref().map(|config| format!("{}, {}", config.object, config.field));
    let default = || "flannel's default, because nothing is written".to_owned();
    let mut from = Vec::new();
    let mut fact = |fact, source| from.push(Origin { fact, source });
    if let Some(set) = set {
        fact("version", format!("image of {}", set.object));
    }
    match (&seen, &file) {
        (Some(_), _) => fact("mode", nodes(TYPE)),
        (None, Some(file)) => fact("mode", file.clone()),
        (None, None) => {}
    }
    if vni.is_some() {
        fact("vni", if shown_vni.is_some() { nodes(DATA) } else { file.clone().unwrap_or_else(default) });
    }
    if port.is_some() {
        fact("port", file.unwrap_or_else(default));
    }
    let flannel = Flannel { daemon_set: set.map(|set| set.object.clone()), config, shown };
    Family { version: cluster.version(Program::Flannel), mode, vni, port, from, settings: flannel }
}
