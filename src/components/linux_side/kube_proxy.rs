//! kube-proxy on Linux nodes.

use super::cluster::Cluster;
use crate::components::place::Place;
use crate::components::workloads::Program;

/// kube-proxy on Linux nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeProxy {
    /// The version, e.g. `v1.36.3`.
    pub version: Option<String>,
    /// `iptables`, `ipvs` or `nftables`; `None`: its configuration cannot be read.
    pub mode: Option<&'static str>,
    /// The source of the mode.
    pub from: String,
}

const MODES: [&str; 3] = ["iptables", "ipvs", "nftables"];
/// kube-proxy's default mode on Linux, in all versions so far.
const DEFAULT_MODE: &str = "iptables";

/// Returns the mode, or kube-proxy's default if none is set.
fn mode(place: &Place<'_>) -> Option<&'static str> {
    let empty = !place.given() || place.value().as_str() == Some("");
    if empty { Some(DEFAULT_MODE) } else { place.one_of(&MODES) }
}

pub(super) fn kube_proxy(cluster: &Cluster<'_>) -> Option<KubeProxy> {
    let set = cluster.linux_set(Program::KubeProxy)?;
    let container = set.container(Program::KubeProxy)?;
    let version = container.tag.as_ref().filter(|tag| tag.starts_with('v')).map(|tag| tag.split('-').next().unwrap_or(tag).to_owned());
    // The ConfigMap's keys with kubeadm and with EKS.
    let (mode, from) = match set.mounted(&["config.conf", "config"], cluster.objects) {
        Some(text) => (text.yaml().and_then(|config| mode(&config.at("mode"))), format!("{}, {}", text.object, text.field)),
        None => {
            let given = container.argument("--proxy-mode").unwrap_or_default();
            let known = MODES.iter().find(|mode| given == **mode).copied().or(given.is_empty().then_some(DEFAULT_MODE));
            (known, format!("arguments of {}", set.object))
        }
    };
    Some(KubeProxy { version, mode, from })
}
