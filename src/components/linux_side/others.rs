//! The networks without settings that matter: the network of Azure, and the networks that Windows nodes cannot join.

use super::cluster::Cluster;
use super::family::Family;
use super::kind::Kind;
use super::source::Origin;
use crate::components::workloads::Program;

fn cilium(cluster: &Cluster<'_>) -> Family<()> {
    let config = cluster.objects.of("", "ConfigMap").into_iter().find(|map| map.object.name == "cilium-config");
    let text = |key: &str| config.as_ref().and_then(|config| config.at("data").at(key).text());
    let mode = match (text("routing-mode").as_deref(), text("tunnel-protocol"), text("tunnel")) {
        (Some("native"), _, _) => "native".into(),
        // Older versions use one key for both settings.
        (_, _, Some(tunnel)) if tunnel == "disabled" => "native".into(),
        (_, protocol, tunnel) => protocol.or(tunnel).unwrap_or_else(|| "vxlan".into()),
    };
    let source = config.as_ref().map(|config| config.object.to_string());
    let from = source.map(|source| Origin { fact: "mode", source }).into_iter().collect();
    Family { from, ..Family::plain(cluster.version(Program::Cilium), Some(mode).filter(|_| config.is_some())) }
}

/// The mode is `overlay` if pods have separate addresses: then nodes have a label, and Azure's agent has a scenario.
fn azure(cluster: &Cluster<'_>) -> Family<()> {
    let labelled = cluster
        .linux
        .iter()
        .any(|node| node.at("metadata").at("labels").at("kubernetes.azure.com/podnetwork-type").text().as_deref() == Some("overlay"));
    let text = cluster.linux_set(Program::AzureCni).and_then(|set| set.mounted(&["cns_config.json"], cluster.objects));
    let scenario = text.as_ref().and_then(|text| text.json()?.at("CNIConflistScenario").text()).unwrap_or_default();
    let overlay = labelled || scenario.to_ascii_lowercase().contains("overlay");
    let source = if labelled { Some("labels of Linux nodes".to_owned()) } else { text.map(|text| format!("{}, {}", text.object, text.field)) };
    let from = source.filter(|_| overlay).map(|source| Origin { fact: "mode", source }).into_iter().collect();
    Family { from, ..Family::plain(cluster.version(Program::AzureCni), overlay.then(|| "overlay".into())) }
}

pub fn read(kind: Kind, cluster: &Cluster<'_>) -> Family<()> {
    match kind {
        Kind::AzureCni => azure(cluster),
        Kind::Cilium => cilium(cluster),
        Kind::Kindnet => Family::plain(cluster.version(Program::Kindnet), None),
        Kind::KubeRouter => Family::plain(cluster.version(Program::KubeRouter), None),
        Kind::Weave => Family::plain(cluster.version(Program::Weave), None),
        Kind::Flannel | Kind::Calico | Kind::Antrea | Kind::OvnKubernetes | Kind::AwsVpcCni | Kind::Canal | Kind::Unknown => {
            Family::plain(None, None)
        }
    }
}
