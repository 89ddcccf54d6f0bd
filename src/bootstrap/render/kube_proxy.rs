//! The configuration of kube-proxy when it runs as a Windows service.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{kubelet, yaml};
use crate::api::bootstrap_config::{DSR_WITHOUT_GATE, KubeProxy};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;

/// The fields of the KubeProxyConfiguration that we set.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::bootstrap) struct KubeProxyConfiguration {
    api_version: &'static str,
    kind: &'static str,
    mode: &'static str,
    client_connection: BTreeMap<&'static str, &'static str>,
    #[serde(rename = "clusterCIDR", skip_serializing_if = "String::is_empty")]
    cluster_cidr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname_override: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    feature_gates: BTreeMap<&'static str, bool>,
    winkernel: Winkernel,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Winkernel {
    network_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_vip: Option<String>,
    #[serde(rename = "enableDSR")]
    enable_dsr: bool,
    forward_health_check_vip: bool,
}

/// Returns the document for `--config`.
pub(super) fn configuration(facts: &BootstrapFacts, spec: &KubeProxy) -> KubeProxyConfiguration {
    let gate = spec.direct_server_return && facts.kubernetes.minor < DSR_WITHOUT_GATE;
    KubeProxyConfiguration {
        api_version: "kubeproxy.config.k8s.io/v1alpha1",
        kind: "KubeProxyConfiguration",
        mode: "kernelspace",
        client_connection: BTreeMap::from([("kubeconfig", paths::KUBELET_KUBECONFIG)]),
        cluster_cidr: facts.pod_networks.join(","),
        hostname_override: facts.host_name.as_ref().map(ToString::to_string),
        feature_gates: gate.then_some(("WinDSR", true)).into_iter().collect(),
        winkernel: Winkernel {
            network_name: spec.network_name.clone(),
            source_vip: spec.source_vip.clone(),
            enable_dsr: spec.direct_server_return,
            forward_health_check_vip: spec.forward_health_check_vip,
        },
    }
}

/// Returns `kube-proxy.yaml`.
pub(in crate::bootstrap) fn text(configuration: &KubeProxyConfiguration) -> Result<String, RenderError> {
    yaml::document("kube-proxy's configuration", configuration)
}

/// Returns the command line of the service. It needs the flag: kube-proxy checks it before it reads `windowsRunAsService` from the file.
pub(in crate::bootstrap) fn command_line(facts: &BootstrapFacts) -> String {
    let mut words = kubelet::log_runner(facts, &format!(r"{}\kube-proxy.log", paths::KUBE_PROXY_LOG));
    words.extend([paths::KUBE_PROXY.to_owned(), "--windows-service".into(), format!("--config={}", paths::KUBE_PROXY_CONFIG), "--v=2".into()]);
    words.join(" ")
}
