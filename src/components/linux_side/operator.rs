//! Calico's operator: its settings for Windows nodes, and whether it works.

use super::api_server::api_server;
use super::cluster::Cluster;
use super::setting::{Setting, setting};
use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Place};

pub(super) const GROUP: &str = "operator.tigera.io";
/// Namespace and name of the ConfigMap with the address of the API server. The ConfigMap is in the operator's namespace, as the operator's manifests
/// and chart name it.
pub const ENDPOINT: (&str, &str) = ("tigera-operator", "kubernetes-services-endpoint");
/// The keys of the ConfigMap [`ENDPOINT`].
pub const HOST: &str = "KUBERNETES_SERVICE_HOST";
pub const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// The TigeraStatus of Calico on Linux nodes, which also covers the operator's work on the Installation as a whole.
pub const OF_LINUX: &str = "calico";
/// The most characters of the operator's message that are quoted.
const QUOTED: usize = 500;

/// The folders of Calico's CNI plugin on Windows nodes, and of its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct CniFolders {
    pub plugins: Setting<String>,
    pub configuration: Setting<String>,
}

/// Calico's operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    pub installation: ObjectRef,
    /// The Service networks that Windows nodes get.
    pub service_networks: Setting<Vec<Cidr>>,
    /// Whether the operator installs Calico on Windows nodes.
    pub windows: Setting<bool>,
    /// `None`: pods use a CNI plugin other than Calico's.
    pub folders: Option<CniFolders>,
    /// Whether the ConfigMap [`ENDPOINT`] has the host and port of the API server; `None`: the ConfigMap is missing.
    pub endpoint: Option<bool>,
    /// The host and port at which nodes reach the API server without a Service.
    pub api_server: Option<(String, u16)>,
    /// The operator's own messages about its failures.
    pub degraded: Vec<Setting<String>>,
}

pub(super) fn read(cluster: &Cluster<'_>, installation: &Place<'_>) -> Operator {
    let service_networks = installation.along("spec.serviceCIDRs");
    let windows = installation.along("spec.calicoNetwork.windowsDataplane");
    let (namespace, name) = ENDPOINT;
    let endpoint = cluster.objects.config_map(namespace, name).map(|map| [HOST, PORT].iter().all(|key| map.at("data").at(key).text().is_some()));
    let windows = setting(&windows, windows.one_of(&["HNS", "Disabled"]) == Some("HNS"));
    // After Windows is switched off, the status of Calico on Windows nodes remains.
    let statuses = [OF_LINUX].into_iter().chain(windows.value.then_some("calico-windows"));
    Operator {
        degraded: statuses.filter_map(|name| degraded(cluster, name)).collect(),
        installation: installation.object.clone(),
        service_networks: setting(&service_networks, service_networks.networks()),
        windows,
        folders: folders(installation),
        endpoint,
        api_server: api_server(cluster),
    }
}

/// The operator's defaults depend on the cloud: see its `DefaultWindowsCNIDirectories`,
/// <https://github.com/tigera/operator/blob/v1.42.3/pkg/render/windows.go>. The default plugin depends on the cloud too.
fn folders(installation: &Place<'_>) -> Option<CniFolders> {
    let cloud = installation.along("spec.kubernetesProvider").text().unwrap_or_default();
    let plugin = installation.along("spec.cni.type").text();
    if plugin.map_or_else(|| ["AKS", "EKS", "GKE"].contains(&cloud.as_str()), |plugin| plugin != "Calico") {
        return None;
    }
    let (plugins, configuration) = match cloud.as_str() {
        "AKS" => ("/k/azurecni/bin", "/k/azurecni/netconf"),
        "EKS" => ("/Program Files/Amazon/EKS/cni", "/Program Files/Amazon/EKS/cni/config"),
        _ => ("/opt/cni/bin", "/etc/cni/net.d"),
    };
    let folder = |field: &str, default: &str| {
        let place = installation.along("spec.windowsNodes").at(field);
        setting(&place, place.text().unwrap_or_else(|| default.to_owned()))
    };
    Some(CniFolders { plugins: folder("cniBinDir", plugins), configuration: folder("cniConfigDir", configuration) })
}

fn degraded(cluster: &Cluster<'_>, name: &str) -> Option<Setting<String>> {
    let conditions = cluster.objects.named(GROUP, "TigeraStatus", None, name)?.along("status.conditions");
    let is = |condition: &Place<'_>, key: &str, value: &str| condition.at(key).text().as_deref() == Some(value);
    let condition = conditions.items().into_iter().find(|condition| is(condition, "type", "Degraded") && is(condition, "status", "True"))?;
    let words: Vec<String> = ["reason", "message"].iter().filter_map(|key| condition.at(key).text()).collect();
    Some(setting(&conditions, words.join(": ").chars().take(QUOTED).collect()))
}
