//! What brings a cluster's pod network and its Services to Windows nodes (pure): the objects that run Flannel and kube-proxy there, with the
//! settings of the Linux side. Calico's operator brings its network itself, and then only kube-proxy is left.
//!
//! Both run the program `capw-node.exe` of CAPW's image in HostProcess pods. It finds on the node what only the node knows, and starts the
//! program of its name, which is on the node already.

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

/// Where all of it is, but for what a cluster has once.
pub const NAMESPACE: &str = "capw-windows";

/// What the objects hold besides the settings of the Linux side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The image of CAPW, e.g. `registry.example.com/capw:v0.2.0`.
    pub image: String,
    /// Where nodes reach the API server, e.g. `https://10.0.0.10:6443`: before kube-proxy runs, no Service has an address there.
    pub api_server: String,
    /// Names of Secrets in [`NAMESPACE`] with which nodes pull the image.
    pub pull_secrets: Vec<String>,
}

/// The objects in the order in which they have to be applied, or why there are none.
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

/// The DaemonSet with which another brings the network to Windows nodes, beside what CAPW brings: that of Calico's operator.
/// <https://github.com/tigera/operator/blob/v1.42.3/pkg/render/windows.go>
pub fn brought_by_another(side: &LinuxSide) -> Option<ObjectRef> {
    (role(side) == Role::Ask).then(|| ObjectRef::new("DaemonSet", Some("calico-system"), "calico-node-windows"))
}

/// Pods that are processes of the host are admitted with the level `privileged` only.
fn namespace() -> Value {
    let mut labels = labels(NAMESPACE);
    labels.extend(["enforce", "audit", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), json!("privileged"))));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// Gives a pod what its node pulls the image with.
pub fn with_pull_secrets(mut pod: Value, names: &[String]) -> Value {
    if let (Value::Object(fields), false) = (&mut pod, names.is_empty()) {
        let secrets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        fields.insert("imagePullSecrets".to_owned(), Value::Array(secrets));
    }
    pod
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
