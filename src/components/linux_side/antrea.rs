//! Antrea: the configuration of its Linux agents, and the state that each agent reports.

use super::cluster::Cluster;
use super::family::Family;
use super::source::Origin;
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::{Program, version};

/// Antrea's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Antrea {
    /// The ConfigMap of the Linux agents, and the field of their configuration.
    pub config: Option<(ObjectRef, String)>,
    /// `encap`, `noEncap`, `hybrid` or `networkPolicyOnly`.
    pub encapsulation: Option<&'static str>,
    /// `geneve`, `vxlan`, `gre` or `stt`.
    pub tunnel: Option<&'static str>,
    /// `none`, `ipsec` or `wireGuard`.
    pub encryption: Option<&'static str>,
    /// The DaemonSet. The next two fields are the version that it requires, and the agents that have another version.
    pub daemon_set: Option<ObjectRef>,
    pub asked: Option<String>,
    pub others: Vec<(ObjectRef, String)>,
}

/// Returns the value, or Antrea's default if none is set; `None` is unreadable.
fn or(place: &Place<'_>, known: &[&'static str], default: &'static str) -> Option<&'static str> {
    let empty = !place.given() || place.value().as_str() == Some("");
    if empty { Some(default) } else { place.one_of(known) }
}

pub fn read(cluster: &Cluster<'_>) -> Family<Antrea> {
    const KEY: &str = "antrea-agent.conf";
    let set = cluster.linux_set(Program::Antrea);
    let text = set
        .and_then(|set| set.mounted(&[KEY], cluster.objects))
        .or_else(|| Some(cluster.objects.config_map("kube-system", "antrea-config")?.at("data").at(KEY)));
    let config = text.as_ref().and_then(Place::yaml);
    let encapsulation =
        config.as_ref().and_then(|config| or(&config.at("trafficEncapMode"), &["encap", "noEncap", "hybrid", "networkPolicyOnly"], "encap"));
    let tunnel = config.as_ref().and_then(|config| or(&config.at("tunnelType"), &["geneve", "vxlan", "gre", "stt"], "geneve"));
    let encryption = config.as_ref().and_then(|config| or(&config.at("trafficEncryptionMode"), &["none", "ipsec", "wireGuard"], "none"));

    let agents = cluster.objects.of("crd.antrea.io", "AntreaAgentInfo");
    let agents: Vec<(ObjectRef, String)> =
        agents.iter().filter_map(|agent| Some((agent.object.clone(), version(&agent.at("version").text()?)?))).collect();
    let asked = cluster.version(Program::Antrea);
    let tunnels = matches!(encapsulation, Some("encap" | "hybrid"));
    let written = config.as_ref().and_then(|config| config.at("tunnelPort").number(u32::from(u16::MAX))).filter(|port| *port > 0);
    let port = written.or(match tunnel {
        Some("geneve") => Some(6081),
        Some("vxlan") => Some(4789),
        Some("stt") => Some(7471),
        _ => None,
    });

    let mut from = Vec::new();
    let mut fact = |fact, source: String| from.push(Origin { fact, source });
    match (agents.first(), set) {
        (Some((agent, _)), _) => fact("version", agent.to_string()),
        (None, Some(set)) => fact("version", format!("image of {}", set.object)),
        (None, None) => {}
    }
    if let Some(text) = text.as_ref().filter(|_| encapsulation.is_some()) {
        let source = format!("{}, {}", text.object, text.field);
        fact("mode", source.clone());
        fact("port", source);
    }
    let others = agents.iter().filter(|(_, version)| asked.as_ref().is_some_and(|asked| asked != version)).cloned().collect();
    let antrea = Antrea {
        config: text.map(|text| (text.object.clone(), text.field.clone())),
        encapsulation,
        tunnel: tunnel.filter(|_| tunnels),
        encryption,
        daemon_set: set.map(|set| set.object.clone()),
        asked: asked.clone(),
        others,
    };
    Family {
        version: agents.into_iter().next().map(|(_, version)| version).or(asked),
        mode: encapsulation.map(str::to_owned),
        vni: None,
        port: port.filter(|_| tunnels),
        from,
        settings: antrea,
    }
}
