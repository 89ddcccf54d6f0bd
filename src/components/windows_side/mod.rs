//! What brings a cluster's pod network and its Services to Windows nodes (pure): the objects that run Flannel and kube-proxy there, with the
//! settings of the Linux side.
//!
//! Both run the program `capw-node.exe` of CAPW's image in HostProcess pods. It finds on the node what only the node knows, and starts the
//! program of its name, which is on the node already.

mod flannel;
mod kube_proxy;
mod overlay;
mod program;
mod refusal;

use serde_json::{Value, json};

pub use flannel::ROLE as FLANNEL_ROLE;
pub use kube_proxy::BINDING as KUBE_PROXY_BINDING;
pub use refusal::Refusal;

use super::linux_side::LinuxSide;
use super::plan::labels;
use overlay::overlay;
use program::Program;

/// Where all of it is, but for what a cluster has once.
pub const NAMESPACE: &str = "capw-windows";

/// What the objects hold besides the settings of the Linux side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The image of CAPW, e.g. `registry.example.com/capw:v0.2.0`.
    pub image: String,
    /// Where nodes reach the API server, e.g. `https://10.0.0.10:6443`: before kube-proxy runs, no Service has an address there.
    pub api_server: String,
}

/// The objects in the order in which they have to be applied, or why there are none.
pub fn windows_side(side: &LinuxSide, parameters: &Parameters) -> Result<Vec<Value>, Refusal> {
    let overlay = overlay(side)?;
    let flannel = Program { name: "flannel", settings: flannel::settings(&overlay, side.dns.as_ref()), readiness: None };
    let kube_proxy =
        Program { name: "kube-proxy", settings: kube_proxy::settings(&overlay, side.kube_proxy.as_ref()), readiness: Some(kube_proxy::readiness()) };
    Ok(vec![
        namespace(),
        flannel.account(),
        flannel::cluster_role(),
        binding(flannel.name, flannel::ROLE, flannel::ROLE),
        flannel.config_map(),
        flannel.daemon_set(parameters),
        kube_proxy.account(),
        binding(kube_proxy.name, kube_proxy::BINDING, kube_proxy::ROLE),
        kube_proxy.config_map(),
        kube_proxy.daemon_set(parameters),
    ])
}

/// Pods that are processes of the host are admitted with the level `privileged` only.
fn namespace() -> Value {
    let mut labels = labels(NAMESPACE);
    labels.extend(["enforce", "audit", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), json!("privileged"))));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// Gives the account of a program the rights of a ClusterRole.
fn binding(account: &str, name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels(account)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    })
}
