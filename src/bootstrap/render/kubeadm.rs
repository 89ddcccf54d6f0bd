//! kubeadm's JoinConfiguration, v1beta4. It contains the bootstrap token: the file is a secret.

use secrecy::ExposeSecret;
use serde::Serialize;

use super::{kubelet, yaml};
use crate::api::bootstrap_config::Taint;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::bootstrap) struct JoinConfiguration<'a> {
    api_version: &'static str,
    kind: &'static str,
    discovery: Discovery<'a>,
    node_registration: NodeRegistration<'a>,
    patches: Patches,
    timeouts: Timeouts,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Discovery<'a> {
    bootstrap_token: BootstrapToken<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BootstrapToken<'a> {
    api_server_endpoint: &'a str,
    token: &'a str,
    ca_cert_hashes: [&'a str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeRegistration<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    cri_socket: &'static str,
    taints: Vec<Taint>,
    kubelet_extra_args: Vec<Argument>,
}

#[derive(Serialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Serialize)]
struct Patches {
    directory: &'static str,
}

/// The limits of a join. They are longer than kubeadm's defaults where the first start on Windows is slow.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Timeouts {
    discovery: String,
    kubelet_health_check: String,
    #[serde(rename = "kubernetesAPICall")]
    kubernetes_api_call: String,
    tls_bootstrap: String,
}

const DISCOVERY: u32 = 300;
const KUBELET_HEALTH_CHECK: u32 = 480;
const KUBERNETES_API_CALL: u32 = 60;
const TLS_BOOTSTRAP: u32 = 600;
/// An upper bound for the calls of a join that wait for the API server: two ConfigMaps, the Node before and after, and its annotation.
const API_CALLS: u32 = 5;

/// The longest time that kubeadm waits before it gives up.
pub(in crate::bootstrap) const LONGEST_SECONDS: u32 = DISCOVERY + KUBELET_HEALTH_CHECK + TLS_BOOTSTRAP + API_CALLS * KUBERNETES_API_CALL;

/// Returns `kubeadm-join.yaml`.
pub(in crate::bootstrap) fn text(configuration: &JoinConfiguration<'_>) -> Result<String, RenderError> {
    yaml::document("kubeadm's configuration", configuration)
}

/// Returns the document for `kubeadm join --config`.
pub(super) fn configuration<'a>(facts: &'a BootstrapFacts, flags: &[(String, String)]) -> JoinConfiguration<'a> {
    JoinConfiguration {
        api_version: "kubeadm.k8s.io/v1beta4",
        kind: "JoinConfiguration",
        discovery: Discovery {
            bootstrap_token: BootstrapToken {
                api_server_endpoint: &facts.endpoint,
                token: facts.token.expose_secret(),
                ca_cert_hashes: [&facts.ca_hash],
            },
        },
        node_registration: NodeRegistration {
            name: facts.host_name.as_ref().map(|name| name.as_str()),
            cri_socket: paths::CRI_SOCKET,
            taints: kubelet::taints(facts),
            kubelet_extra_args: flags.iter().map(|(name, value)| Argument { name: name.clone(), value: value.clone() }).collect(),
        },
        patches: Patches { directory: paths::PATCHES },
        timeouts: Timeouts {
            discovery: minutes(DISCOVERY),
            kubelet_health_check: minutes(KUBELET_HEALTH_CHECK),
            kubernetes_api_call: minutes(KUBERNETES_API_CALL),
            tls_bootstrap: minutes(TLS_BOOTSTRAP),
        },
    }
}

/// Returns a duration as Go writes it.
fn minutes(seconds: u32) -> String {
    format!("{}m{}s", seconds / 60, seconds % 60)
}
