//! The objects that install a cluster's pod network and Services on Windows nodes (pure): they run Flannel and kube-proxy there, with the settings of
//! the Linux side. Calico's operator installs Calico itself, so CAPW installs only kube-proxy.
//!
//! Both run the program `capw-node.exe` of CAPW's image in HostProcess pods. This program detects the facts that only the node knows, and starts the
//! requested program, which is already on the node.

mod flannel;
mod kube_proxy;
mod network;
mod program;
mod refusal;

use serde_json::{Value, json};

pub use self::flannel::ROLE as FLANNEL_ROLE;
pub use self::kube_proxy::BINDING as KUBE_PROXY_BINDING;
use self::network::{Network, network};
use self::program::Program;
pub use self::refusal::Refusal;
use super::linux_side::LinuxSide;
use super::place::ObjectRef;
use super::plan::labels;
use super::role::{Role, role};

/// The namespace of all installed objects, except for cluster-scoped ones.
pub const NAMESPACE: &str = "capw-windows";

/// The values in the objects that are not settings of the Linux side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The image of CAPW, e.g. `registry.example.com/capw:v0.2.0`.
    pub image: String,
    /// The address at which nodes reach the API server, e.g. `https://10.0.0.10:6443`: no Service works there before kube-proxy runs.
    pub api_server: String,
    /// Names of Secrets in [`NAMESPACE`] with which nodes pull the image.
    pub pull_secrets: Vec<String>,
}

/// Returns the objects in the order in which they must be applied, or the reason why none are rendered.
pub fn windows_side(side: &LinuxSide, parameters: &Parameters) -> Result<Vec<Value>, Refusal> {
    let network = network(side)?;
    let mut objects = vec![namespace()];
    if let Network::Flannel(settings) = &network {
        let flannel = Program { name: "flannel", arguments: &[], settings: flannel::settings(settings, side.dns.as_ref()), readiness: None };
        objects.extend([
            flannel.account(),
            flannel::cluster_role(),
            binding(flannel.name, flannel::ROLE, flannel::ROLE),
            flannel.config_map(),
            flannel.daemon_set(parameters),
        ]);
    }
    let kube_proxy = Program {
        name: "kube-proxy",
        arguments: kube_proxy::arguments(&network),
        settings: kube_proxy::settings(&network, side.kube_proxy.as_ref()),
        readiness: Some(kube_proxy::readiness()),
    };
    objects.extend([
        kube_proxy.account(),
        binding(kube_proxy.name, kube_proxy::BINDING, kube_proxy::ROLE),
        kube_proxy.config_map(),
        kube_proxy.daemon_set(parameters),
    ]);
    Ok(objects)
}

/// The DaemonSet by which Calico's operator installs the network on Windows nodes, in addition to CAPW's objects.
/// <https://github.com/tigera/operator/blob/v1.42.3/pkg/render/windows.go>
pub fn brought_by_another(side: &LinuxSide) -> Option<ObjectRef> {
    (role(side) == Role::Ask).then(|| ObjectRef::new("DaemonSet", Some("calico-system"), "calico-node-windows"))
}

/// HostProcess pods are admitted only at the level `privileged`.
fn namespace() -> Value {
    let mut labels = labels(NAMESPACE);
    labels.extend(["enforce", "audit", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), json!("privileged"))));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// Adds the image pull secrets to a pod.
pub fn with_pull_secrets(mut pod: Value, names: &[String]) -> Value {
    if let (Value::Object(fields), false) = (&mut pod, names.is_empty()) {
        let secrets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        fields.insert("imagePullSecrets".to_owned(), Value::Array(secrets));
    }
    pod
}

/// Binds the service account of a program to a ClusterRole.
fn binding(account: &str, name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels(account)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    })
}
