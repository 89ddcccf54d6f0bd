//! OVN-Kubernetes: its hybrid overlay, which connects Windows nodes. OpenShift, the chart and flags configure it in different places.

use super::cluster::{Cluster, counted};
use super::family::Family;
use super::source::{Origin, Told};
use crate::components::cidr::{Cidr, listed};
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::{Program, version};

/// The annotation of a node with its blocks of the pod network.
pub const SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// Prefix of the annotations of nodes that take part in the hybrid overlay.
const HYBRID: &str = "k8s.ovn.org/hybrid-overlay-";
/// The VNI of the hybrid overlay, which cannot be changed.
const VNI: u32 = 4097;
const DEFAULT_PORT: u32 = 4789;
const MOST_PORT: u32 = u16::MAX as u32;

/// OVN-Kubernetes' settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Ovn {
    /// The object that switches the hybrid overlay on. The next two fields are its field, and whether the overlay is on.
    pub object: ObjectRef,
    pub field: String,
    pub asked: bool,
    /// The nodes that take part in the hybrid overlay.
    pub shown: Vec<ObjectRef>,
    /// The networks of pods on Windows nodes.
    pub hybrid: Vec<Cidr>,
    /// The networks of pods on Linux nodes. The networks of Services follow.
    pub pods: Option<Told>,
    pub services: Option<Told>,
}

/// The configuration of the hybrid overlay.
struct Written {
    object: ObjectRef,
    field: String,
    asked: bool,
    port: Option<u32>,
    networks: Vec<Cidr>,
}

/// Parses networks. A node's prefix length may follow each of them: `10.244.0.0/16/24`.
fn networks(place: &Place<'_>, text: &str) -> Vec<Cidr> {
    let without_share = |network: &str| network.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
    let found = Cidr::parse_all(&text.split(',').map(without_share).collect::<Vec<_>>().join(","));
    if found.is_none() {
        place.problem(format!("has {text:?}, expected networks"));
    }
    found.unwrap_or_default()
}

/// Returns a value of `ovnkube.conf`, which has sections, keys and quoted values.
fn in_file(text: &str, section: &str, key: &str) -> Option<String> {
    let heading = format!("[{section}]");
    let lines = text.lines().map(str::trim).skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('['));
    let mut values = lines.filter_map(|line| line.split_once('=')).filter(|(found, _)| found.trim() == key);
    values.next().map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

fn file<'a>(cluster: &'a Cluster<'_>) -> Option<Place<'a>> {
    cluster.linux_set(Program::OvnKubernetes)?.mounted(&["ovnkube.conf"], cluster.objects)
}

/// Reads the configuration of OpenShift's operator, which renders all other settings.
fn of_openshift(cluster: &Cluster<'_>) -> Option<Written> {
    let network = cluster.objects.named("operator.openshift.io", "Network", None, "cluster")?;
    let place = network.along("spec.defaultNetwork.ovnKubernetesConfig.hybridOverlayConfig");
    let networks = place.at("hybridClusterNetwork").items().iter().filter_map(|item| item.at("cidr").network()).collect();
    let port = place.at("hybridOverlayVXLANPort").number(MOST_PORT);
    Some(Written { asked: place.given(), object: place.object, field: place.field, port, networks })
}

fn of_file(cluster: &Cluster<'_>) -> Option<Written> {
    const SECTION: &str = "hybridoverlay";
    let place = file(cluster)?;
    let text = place.text()?;
    let value = |key| in_file(&text, SECTION, key);
    Some(Written {
        asked: value("enabled").as_deref() == Some("true"),
        port: value("hybrid-overlay-vxlan-port").and_then(|port| port.parse().ok()),
        networks: value("cluster-subnets").map(|text| networks(&place, &text)).unwrap_or_default(),
        object: place.object.clone(),
        field: format!("{}[{SECTION}].enabled", place.field),
    })
}

/// Reads the variables that the chart sets, or the flags.
fn of_daemon_set(cluster: &Cluster<'_>) -> Written {
    let set = cluster.linux_set(Program::OvnKubernetes);
    let variable = |name| set.and_then(|set| set.container(Program::OvnKubernetes)?.variable(name, set.namespace(), cluster.objects));
    let flag = |name: &str| set.and_then(|set| set.containers.iter().find_map(|container| container.argument(name)));
    let by_variable = variable("OVN_HYBRID_OVERLAY_ENABLE").and_then(|place| place.flag_in_text());
    let subnets = variable("OVN_HYBRID_OVERLAY_NET_CIDR");
    Written {
        object: set.map_or_else(|| ObjectRef::new("DaemonSet", None, "ovnkube-node"), |set| set.object.clone()),
        field: "spec.template.spec.containers[].env[OVN_HYBRID_OVERLAY_ENABLE]".into(),
        asked: by_variable.unwrap_or_else(|| flag("--enable-hybrid-overlay").is_some_and(|value| value != "false")),
        port: flag("--hybrid-overlay-vxlan-port").and_then(|port| port.parse().ok()),
        networks: subnets.and_then(|place| Some(networks(&place, &place.text()?))).unwrap_or_default(),
    }
}

/// Reads the networks of the chart's ConfigMap, or of the file.
fn told(cluster: &Cluster<'_>, key: &str, section: &str, key_in_file: &str) -> Option<Told> {
    let map = cluster.objects.of("", "ConfigMap").into_iter().find(|map| map.object.name == "ovn-config");
    let place = map.map(|map| map.at("data").at(key)).filter(Place::given);
    let (place, text) = match place {
        Some(place) => (place.clone(), place.text()?),
        None => {
            let place = file(cluster)?;
            let text = in_file(&place.text()?, section, key_in_file)?;
            (place, text)
        }
    };
    let networks = networks(&place, &text);
    Some(Told { object: place.object, field: place.field, networks })
}

pub fn read(cluster: &Cluster<'_>) -> Family<Ovn> {
    let written = of_openshift(cluster).or_else(|| of_file(cluster)).unwrap_or_else(|| of_daemon_set(cluster));
    let takes_part = |node: &&Place<'_>| node.along("metadata.annotations").keys().iter().any(|key| key.starts_with(HYBRID));
    let shown: Vec<ObjectRef> = cluster.linux.iter().filter(takes_part).map(|node| node.object.clone()).collect();
    let hybrid = !shown.is_empty();
    let mut from = vec![Origin { fact: "mode", source: format!("annotations {HYBRID}… of {}", counted(shown.len())) }];
    if hybrid {
        let note = if written.networks.is_empty() { String::new() } else { format!(", for {}", listed(&written.networks)) };
        from.push(Origin { fact: "port", source: format!("{}, {}{note}", written.object, written.field) });
    }
    // OpenShift's images have no tag.
    let of_release = || {
        let set = cluster.linux_set(Program::OvnKubernetes)?;
        let place = cluster.objects.named("apps", "DaemonSet", set.object.namespace.as_deref(), &set.object.name)?;
        version(&place.annotation("release.openshift.io/version").text()?)
    };
    Family {
        version: cluster.version(Program::OvnKubernetes).or_else(of_release),
        mode: Some(if hybrid { "hybrid-overlay" } else { "overlay" }.into()),
        vni: hybrid.then_some(VNI),
        port: hybrid.then(|| written.port.unwrap_or(DEFAULT_PORT)),
        from,
        settings: Ovn {
            object: written.object,
            field: written.field,
            asked: written.asked,
            shown,
            hybrid: written.networks,
            pods: told(cluster, "net_cidr", "default", "cluster-subnets"),
            services: told(cluster, "svc_cidr", "kubernetes", "service-cidrs"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_sections_are_told_apart() {
        let text = "[default]\ncluster-subnets=\"10.128.0.0/14/23\"\n [hybridoverlay]\nenabled = true\ncluster-subnets=\"10.132.0.0/14\"\n";
        for (section, key, expected) in [
            ("default", "cluster-subnets", Some("10.128.0.0/14/23")),
            ("default", "enabled", None),
            ("hybridoverlay", "cluster-subnets", Some("10.132.0.0/14")),
            ("hybridoverlay", "enabled", Some("true")),
            ("gateway", "enabled", None),
        ] {
            assert_eq!(in_file(text, section, key).as_deref(), expected, "{section} {key}");
        }
    }
}
