//! Calico's operator: what it is told about Windows nodes, and whether it can work.

use super::calico::{Setting, setting};
use super::{Cluster, cluster};
use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Place};

pub(super) const GROUP: &str = "operator.tigera.io";
/// Namespace and name of the ConfigMap that tells it where the API server is; it is in the namespace of the operator, as its manifests and its chart
/// make that.
pub const ENDPOINT: (&str, &str) = ("tigera-operator", "kubernetes-services-endpoint");
/// Keys of that ConfigMap.
pub const HOST: &str = "KUBERNETES_SERVICE_HOST";
pub const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// So many characters of its words are quoted.
const QUOTED: usize = 500;

/// Calico's operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    pub installation: ObjectRef,
    /// The networks of Services, as Windows nodes get them.
    pub service_networks: Setting<Vec<Cidr>>,
    /// Whether it brings Calico to Windows nodes.
    pub windows: Setting<bool>,
    /// Whether the ConfigMap [`ENDPOINT`] has host and port of the API server; `None`: it is not there.
    pub endpoint: Option<bool>,
    /// Host and port of the API server, as nodes reach it without a Service.
    pub api_server: Option<(String, u16)>,
    /// Why it does not get on, in its own words.
    pub degraded: Vec<Setting<String>>,
}

pub(super) fn read(cluster: &Cluster<'_>, installation: &Place<'_>) -> Operator {
    let service_networks = installation.along("spec.serviceCIDRs");
    let windows = installation.along("spec.calicoNetwork.windowsDataplane");
    let (namespace, name) = ENDPOINT;
    let endpoint = cluster.objects.config_map(namespace, name).map(|map| [HOST, PORT].iter().all(|key| map.at("data").at(key).text().is_some()));
    let windows = setting(&windows, windows.one_of(&["HNS", "Disabled"]) == Some("HNS"));
    // What it says of Calico on Windows nodes stays when that is switched off.
    let statuses = ["calico"].into_iter().chain(windows.value.then_some("calico-windows"));
    Operator {
        degraded: statuses.filter_map(|name| degraded(cluster, name)).collect(),
        installation: installation.object.clone(),
        service_networks: setting(&service_networks, service_networks.networks()),
        windows,
        endpoint,
        api_server: cluster::api_server(cluster),
    }
}

fn degraded(cluster: &Cluster<'_>, name: &str) -> Option<Setting<String>> {
    let conditions = cluster.objects.named(GROUP, "TigeraStatus", None, name)?.along("status.conditions");
    let is = |condition: &Place<'_>, key: &str, value: &str| condition.at(key).text().as_deref() == Some(value);
    let condition = conditions.items().into_iter().find(|condition| is(condition, "type", "Degraded") && is(condition, "status", "True"))?;
    let words: Vec<String> = ["reason", "message"].iter().filter_map(|key| condition.at(key).text()).collect();
    Some(setting(&conditions, words.join(": ").chars().take(QUOTED).collect()))
}
