//! The objects of one cluster.

use serde_json::{Value, json};

use super::namespace::{NAMESPACE, namespace};
use super::network::{Network, network};
use super::parameters::Parameters;
use super::program::Program;
use super::refusal::Refusal;
use super::{flannel, kube_proxy};
use crate::components::linux_side::LinuxSide;
use crate::components::place::ObjectRef;
use crate::components::plan::labels;
use crate::components::role::{Role, role};

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
