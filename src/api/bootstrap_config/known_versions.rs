//! Versions that only users know.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::kube_proxy::ProxyNetwork;

/// Versions of programs in the image and in the cluster.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KnownVersions {
    /// Network plug-in of the cluster, e.g. `calico@3.32` or `flannel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][-A-Za-z0-9]*(@v?[0-9]+([.][0-9]+){0,2})?$')").message("must be NAME or NAME@VERSION, e.g. calico@3.32"))]
    pub network_plugin: Option<String>,
    /// How the cluster's pod network reaches pods on Windows, if CAPW does not run kube-proxy with `kubeProxy.networkType`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_network: Option<ProxyNetwork>,
    /// Revision of Windows in the image, the last number of its version: 5499 in 10.0.20348.5499.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99_999))]
    pub windows_revision: Option<i32>,
    /// Version of cloudbase-init in the image, e.g. `1.1.8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9]+([.][0-9]+){0,2}$')").message("must be a version, e.g. 1.1.8"))]
    pub cloudbase_init: Option<String>,
}
