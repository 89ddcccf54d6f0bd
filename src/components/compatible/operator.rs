//! The settings that Calico's operator needs before it installs Calico on Windows nodes, and the switch that enables this installation.
//!
//! Once the switch is on, the operator refuses an Installation without one of these settings, and renders nothing for Linux nodes either:
//! <https://github.com/tigera/operator/blob/v1.42.3/pkg/controller/installation/validation.go>. How the operator renders Windows:
//! <https://github.com/tigera/operator/blob/v1.42.3/pkg/controller/installation/windows_controller.go>.

use serde_json::{Map, json};

use super::calico::finding;
use crate::api::condition::Reason;
use crate::components::cidr::{Cidr, listed};
use crate::components::finding::{Finding, Patch};
use crate::components::linux_side::{ENDPOINT, HOST, LinuxSide, Node, OF_LINUX, Operator, PORT, Setting, Settings};
use crate::components::place::ObjectRef;

/// The folders in which containerd on CAPW's nodes expects CNI plugins and their configuration. The operator's own folders for a cloud differ, and
/// the operator accepts these fields only together with the switch. Calico creates its log folder wherever it is configured.
const FOLDERS: [(&str, &str); 2] = [("cniBinDir", "/opt/cni/bin"), ("cniConfigDir", "/etc/cni/net.d")];

/// Reports missing settings other than the switch, and the errors that the operator reports itself.
pub fn judge(operator: &Operator, side: &LinuxSide) -> Vec<Finding> {
    let degraded = operator.degraded.iter().map(|at| degraded(operator, at));
    let told = [service_networks(operator, &side.service_networks), endpoint(operator), folders(operator, &side.nodes)];
    told.into_iter().flatten().chain(degraded).collect()
}

/// Reports an error of the operator. CAPW does not turn the switch off: the error may have another cause, and the pods of Windows nodes would lose
/// their network.
fn degraded(operator: &Operator, at: &Setting<String>) -> Finding {
    let remedy = match operator.windows.value && at.object.name == OF_LINUX {
        false => "do what it says; until then the operator may bring no change to nodes".to_owned(),
        true => {
            let off = Patch::Merge(json!({"spec": {"calicoNetwork": {"windowsDataplane": "Disabled"}, "windowsNodes": null}}));
            let off = off.command(&operator.installation);
            format!(
                "do what it says; until then the operator may bring no change to Linux nodes either. If that cannot wait: `{off}`, after which pods on Windows nodes have no network"
            )
        }
    };
    finding(Reason::OperatorDegraded, at, format!("Calico's operator does not get on: {}", at.value), remedy)
}

/// Pods of Windows nodes reach Services only in these networks.
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
    Some(Finding { patch, ..finding(Reason::ServiceNetworkNotConfigured, at, message, "apply the patch: nothing restarts on Linux nodes") })
}

/// Calico on Windows nodes needs the API server before any Service works there.
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
        reason: Reason::ApiServerNotConfigured,
        object: ObjectRef::new("ConfigMap", Some(namespace), name),
        field: format!("data.{HOST}"),
        message: "Calico's operator is not told where nodes reach the API server without a Service, which Windows nodes need".into(),
        patch,
        remedy: format!("{how}; then the operator restarts calico-node and Typha on Linux nodes one after the other, and they use that address too"),
    })
}

/// Checks the folders on Windows nodes, which all Windows nodes share. Without Windows the operator refuses the fields.
fn folders(operator: &Operator, nodes: &[Node]) -> Option<Finding> {
    let folders = operator.folders.as_ref().filter(|_| operator.windows.value)?;
    let given = [&folders.plugins, &folders.configuration];
    let wrong: Vec<_> = given.into_iter().zip(FOLDERS).filter(|(given, (_, right))| !is_same(&given.value, right)).collect();
    let (first, _) = wrong.first()?;
    let used: Vec<&str> = wrong.iter().map(|(given, _)| given.value.as_str()).collect();
    let right: Vec<&str> = wrong.iter().map(|(_, (_, right))| *right).collect();
    let message = format!(
        "Calico has its CNI plugin on Windows nodes in {}, and containerd of CAPW's nodes looks in {}: their pods get no network",
        used.join(" and "),
        right.join(" and ")
    );
    let fields: Map<_, _> = wrong.iter().map(|(_, (field, right))| ((*field).to_owned(), json!(right))).collect();
    let patch = Patch::Merge(json!({"spec": {"windowsNodes": fields}}));
    let then = "the operator then restarts Calico's pods on Windows nodes, and changes nothing on Linux nodes";
    let (patch, remedy) = unless_foreign(&operator.installation, patch, then, nodes);
    Some(Finding { patch, ..finding(Reason::CniFoldersDiffer, first, message, remedy) })
}

/// Offers the patch only if CAPW created all Windows nodes, because it affects all of them. `then` is the effect of the change.
fn unless_foreign(object: &ObjectRef, patch: Patch, then: &str, nodes: &[Node]) -> (Option<Patch>, String) {
    match nodes.iter().find(|node| node.windows && !node.is_ours) {
        None => (Some(patch), format!("apply the patch: {then}")),
        Some(foreign) => {
            let why = format!("CAPW did not make {}, which may need what is there, so it leaves this to people", foreign.object);
            let command = patch.command(object);
            (None, format!("{why}: if no such node needs it, `{command}`; {then}"))
        }
    }
}

/// Whether Windows treats both as the same folder.
fn is_same(one: &str, other: &str) -> bool {
    let plain = |folder: &str| {
        let folder = folder.replace('\\', "/").to_ascii_lowercase();
        folder.trim_start_matches("c:").trim_end_matches('/').to_owned()
    };
    plain(one) == plain(other)
}

/// Reports that the switch for Windows nodes is off. Turning it on does not affect Linux nodes if all other settings are right.
pub fn switch(side: &LinuxSide) -> Option<Finding> {
    let Settings::Calico(calico) = &side.network.settings else { return None };
    let operator = calico.operator.as_ref().filter(|operator| !operator.windows.value)?;
    let folders: Map<_, _> = FOLDERS.iter().map(|(field, folder)| ((*field).to_owned(), json!(folder))).collect();
    let patch = json!({"spec": {"calicoNetwork": {"windowsDataplane": "HNS"}, "windowsNodes": folders}});
    let message = "Calico's operator is not told to bring Calico to Windows nodes";
    let (patch, remedy) = match operator.degraded.first() {
        None => {
            let then = "the operator then makes the DaemonSet calico-node-windows, and changes nothing on Linux nodes";
            unless_foreign(&operator.installation, Patch::Merge(patch), then, &side.nodes)
        }
        Some(at) => (None, format!("fix first what {} says, because the operator does not get on; then set the field to HNS", at.object)),
    };
    Some(Finding { patch, ..finding(Reason::WindowsDataplaneOff, &operator.windows, message, remedy) })
}
