//! What Calico's operator has to know before it brings Calico to Windows nodes, and the switch that makes it do so.
//!
//! Once that is on, it refuses an Installation without one of these, and renders nothing for Linux nodes either:
//! <https://github.com/tigera/operator/blob/v1.42.3/pkg/controller/installation/validation.go>. How it renders Windows:
//! <https://github.com/tigera/operator/blob/v1.42.3/pkg/controller/installation/windows_controller.go>.

use serde_json::json;

use super::calico::finding;
use crate::api::condition::Reason;
use crate::components::cidr::{Cidr, listed};
use crate::components::finding::{Finding, Patch};
use crate::components::linux_side::{ENDPOINT, HOST, Operator, PORT, Settings};
use crate::components::place::ObjectRef;

/// Where containerd of CAPW's nodes has CNI plugins and their configuration. The operator's own folders for a cloud are others, and it takes them
/// together with the switch only.
const FOLDERS: [(&str, &str); 2] = [("cniBinDir", "/opt/cni/bin"), ("cniConfigDir", "/etc/cni/net.d")];

/// What it is not told, but the switch, and what it says itself. `services` are the networks of Services.
pub fn judge(operator: &Operator, services: &[Cidr]) -> Vec<Finding> {
    let degraded = operator.degraded.iter().map(|at| {
        let remedy = "do what it says; until then the operator may bring no change to nodes";
        finding(Reason::OperatorDegraded, at, format!("Calico's operator does not get on: {}", at.value), remedy)
    });
    service_networks(operator, services).into_iter().chain(endpoint(operator)).chain(degraded).collect()
}

/// Pods of Windows nodes reach Services in these networks only.
fn service_networks(operator: &Operator, services: &[Cidr]) -> Option<Finding> {
    let at = &operator.service_networks;
    let four: Vec<Cidr> = services.iter().copied().filter(|network| network.is_ipv4()).collect();
    let unknown = four.iter().find(|network| !at.value.iter().any(|known| known.contains(**network)))?;
    let message = match at.value.is_empty() {
        true => format!("Calico's operator is not told the Service network {unknown}, without which it refuses Windows nodes"),
        false => format!("Calico's operator is told {}, without the Service network {unknown}: Windows pods would not reach it", listed(&at.value)),
    };
    let four: Vec<String> = four.iter().map(ToString::to_string).collect();
    let patch = Some(Patch::Merge(json!({"spec": {"serviceCIDRs": four}})));
    Some(Finding { patch, ..finding(Reason::ServiceNetworkNotTold, at, message, "apply the patch: nothing restarts on Linux nodes") })
}

/// Calico on Windows nodes asks the API server before any Service works there.
fn endpoint(operator: &Operator) -> Option<Finding> {
    if operator.endpoint == Some(true) {
        return None;
    }
    let (namespace, name) = ENDPOINT;
    let data = operator.api_server.as_ref().map(|(host, port)| json!({"data": {HOST: host, PORT: port.to_string()}}));
    let patch = data.map(|mut object| {
        if operator.endpoint.is_some() {
            return Patch::Merge(object);
        }
        json_patch::merge(&mut object, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}));
        Patch::New { object, beside: operator.installation.clone() }
    });
    let how = match patch {
        Some(_) => "apply the command".to_owned(),
        None => format!("give the ConfigMap the keys {HOST} and {PORT}, with the address at which all nodes reach the API server without a Service"),
    };
    Some(Finding {
        reason: Reason::ApiServerNotTold,
        object: ObjectRef::new("ConfigMap", Some(namespace), name),
        field: format!("data.{HOST}"),
        message: "Calico's operator is not told where nodes reach the API server without a Service, which Windows nodes need".into(),
        patch,
        remedy: format!("{how}; then the operator restarts calico-node and Typha on Linux nodes one after the other, and they use that address too"),
    })
}

/// The switch for Windows nodes. Linux nodes do not notice it if all else is right.
pub fn switch(settings: &Settings) -> Option<Finding> {
    let Settings::Calico(calico) = settings else { return None };
    let operator = calico.operator.as_ref().filter(|operator| !operator.windows.value)?;
    let folders: serde_json::Map<_, _> = FOLDERS.iter().map(|(field, folder)| ((*field).to_owned(), json!(folder))).collect();
    let patch = json!({"spec": {"calicoNetwork": {"windowsDataplane": "HNS"}, "windowsNodes": folders}});
    let message = "Calico's operator is not told to bring Calico to Windows nodes";
    let (patch, remedy) = match operator.degraded.first() {
        None => (
            Some(Patch::Merge(patch)),
            "apply the patch: the operator then makes the DaemonSet calico-node-windows, and changes nothing on Linux nodes".into(),
        ),
        Some(at) => (None, format!("mend first what {} says, because the operator does not get on; then set the field to HNS", at.object)),
    };
    Some(Finding { patch, ..finding(Reason::WindowsDataplaneOff, &operator.windows, message, remedy) })
}
