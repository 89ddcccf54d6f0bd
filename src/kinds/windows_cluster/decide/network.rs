//! The reports of a WindowsCluster about its pod network (`docs/pod-network.md`).

use std::time::Duration;

use crate::api::components::{ComponentFinding, ComponentsStatus, NetworkStatus};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::components::{Finding, LinuxSide, Step, Write, is_warning, pods_per_node, role};

/// The time after which a cluster is checked again, whatever its watch shows.
pub const RECHECK: Duration = Duration::from_secs(300);
/// The time after which a cluster is checked again if it could not be read.
pub const RECHECK_SOON: Duration = Duration::from_secs(15);

/// The report about a Linux side.
#[derive(Debug, PartialEq)]
pub struct NetworkReport {
    pub status: ComponentsStatus,
    pub condition: Desired,
    pub scheduling: Desired,
}

/// Reports the network, and the misplaced DaemonSets.
pub fn report(side: &LinuxSide, found: &[Finding], misplaced: &[Finding]) -> NetworkReport {
    let worst = found.iter().find(|finding| !is_warning(finding.reason));
    let condition = match worst {
        None => Desired::yes(ConditionType::NetworkCompatible, Reason::NetworkUsable),
        Some(worst) => Desired::no(ConditionType::NetworkCompatible, worst.reason, message(found)),
    };
    let status = ComponentsStatus {
        network: Some(network(side)),
        findings: found.iter().chain(misplaced).map(finding).collect(),
        ..ComponentsStatus::default()
    };
    let scheduling = match misplaced.first() {
        None => Desired::yes(ConditionType::SchedulingClean, Reason::PodsPlaceable),
        Some(first) => Desired::no(ConditionType::SchedulingClean, first.reason, message(misplaced)),
    };
    NetworkReport { status, condition, scheduling }
}

/// The progress of a change of the Linux side after the step, and when to check the cluster again.
pub fn progress(step: &Step) -> (Desired, Duration) {
    let condition = |reason, message: &str| Desired::no(ConditionType::LinuxSideReady, reason, message);
    match step {
        Step::Nothing => (Desired::yes(ConditionType::LinuxSideReady, Reason::NoChangeNeeded), RECHECK),
        Step::Write(Write { what: text, .. }) | Step::Wait(text) => (condition(Reason::ChangingLinuxSide, text), RECHECK_SOON),
        Step::Leave(reason, why) => (condition(*reason, why), RECHECK),
    }
}

/// The condition when the cluster could not be read: the last known state stays.
pub fn unread(reason: Reason, message: String) -> (Desired, Duration) {
    (Desired::unknown(ConditionType::NetworkCompatible, reason, message), RECHECK_SOON)
}

fn network(side: &LinuxSide) -> NetworkStatus {
    let network = &side.network;
    let from: Vec<String> = network.from.iter().map(|origin| format!("{}: {}", origin.fact, origin.source)).collect();
    NetworkStatus {
        name: network.mode.as_ref().map_or_else(|| network.kind.to_string(), |mode| format!("{}/{mode}", network.kind)),
        version: network.version.clone(),
        vni: network.vni.map(i64::from),
        port: network.port.map(i64::from),
        pod_networks: network.pod_networks.iter().map(ToString::to_string).collect(),
        service_networks: side.service_networks.iter().map(ToString::to_string).collect(),
        pods_per_node: pods_per_node(side).and_then(|pods| i64::try_from(pods).ok()),
        from: Some(from.join("; ")).filter(|text| !text.is_empty()),
        role: Some(role(side).to_string()),
    }
}

fn finding(finding: &Finding) -> ComponentFinding {
    ComponentFinding {
        reason: finding.reason.to_string(),
        object: finding.object.to_string(),
        field: finding.field.clone(),
        message: finding.message.clone(),
        remedy: finding.remedy.clone(),
        command: finding.command(),
    }
}

/// All findings, one per line. One remedy may serve several findings.
fn message(found: &[Finding]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (at, finding) in found.iter().enumerate() {
        let is_said_again = found.iter().skip(at + 1).any(|later| later.remedy == finding.remedy);
        let remedy = if is_said_again { String::new() } else { format!("; {}", finding.remedy) };
        lines.push(format!("{}, {}: {}{remedy}", finding.object, finding.field, finding.message));
    }
    if found.iter().any(|finding| finding.patch.is_some()) {
        lines.push("status.components.findings has the commands".to_owned());
    }
    lines.join(". ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::components::{judge, misplaced, read};

    #[test]
    fn a_change_is_looked_at_soon_while_it_is_under_way() {
        for (step, status, reason, requeue_after) in [
            (Step::Nothing, true, Reason::NoChangeNeeded, RECHECK),
            (Step::Wait("1 of 2 pods".into()), false, Reason::ChangingLinuxSide, RECHECK_SOON),
            (Step::Leave(Reason::ManagedElsewhere, "of Helm".into()), false, Reason::ManagedElsewhere, RECHECK),
        ] {
            let (condition, after) = progress(&step);
            assert_eq!((condition.status, condition.reason, after), (Some(status), reason, requeue_after), "{step:?}");
            assert_eq!(condition.type_, ConditionType::LinuxSideReady);
        }
    }

    #[test]
    fn what_is_in_the_way_is_said_with_the_command_that_puts_it_right() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "linux-1", "labels": {"kubernetes.io/os": "linux"}, "annotations": {
            "flannel.alpha.coreos.com/backend-type": "vxlan", "flannel.alpha.coreos.com/backend-data": "{\"VNI\":1,\"VtepMAC\":\"8e:00:00:00:00:01\"}"}},
            "spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}, "status": {"nodeInfo": {"operatingSystem": "linux"}}});
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-flannel-ds", "namespace": "kube-flannel"}, "spec": {"template": {"spec": {
            "containers": [{"name": "kube-flannel", "image": "ghcr.io/flannel-io/flannel:v0.28.9"}],
            "volumes": [{"name": "cfg", "configMap": {"name": "kube-flannel-cfg"}}]}}}});
        let conf = "{\"Network\": \"10.244.0.0/16\", \"Backend\": {\"Type\": \"vxlan\"}}";
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-flannel"}, "data": {"net-conf.json": conf}});
        let services = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
        let report = |objects: &[serde_json::Value]| {
            let side = read(objects);
            report(&side, &judge(&side), &misplaced(objects))
        };
        let said = report(&[node.clone(), set.clone(), config, services.clone()]);
        assert_eq!((said.condition.status, said.condition.reason), (Some(false), Reason::VniBelow4096));
        for part in [
            "ConfigMap kube-flannel/kube-flannel-cfg, data[net-conf.json].Backend.VNI: ",
            "port 8472",
            "kubectl rollout restart",
            "status.components.findings",
        ] {
            assert!(said.condition.message.contains(part), "{part}: {}", said.condition.message);
        }
        assert_eq!(said.condition.message.matches("rollout restart").count(), 1, "{}", said.condition.message);
        let network = said.status.network.unwrap();
        assert_eq!((network.name.as_str(), network.vni, network.port, network.role.as_deref()), ("flannel/vxlan", Some(1), Some(8472), Some("Run")));
        assert_eq!(network.pods_per_node, Some(251));
        let command = said.status.findings[0].command.clone().unwrap();
        assert!(command.starts_with("kubectl patch -n kube-flannel configmap/kube-flannel-cfg --type merge -p '{\"data\":"), "{command}");
        let right = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-flannel"},
            "data": {"net-conf.json": conf.replace("\"vxlan\"", "\"vxlan\", \"VNI\": 4096, \"Port\": 4789")}});
        let shown = |node: &serde_json::Value| {
            let mut node = node.clone();
            node["metadata"]["annotations"]["flannel.alpha.coreos.com/backend-data"] = json!("{\"VNI\":4096}");
            node
        };
        let said = report(&[shown(&node), set, right, services]);
        assert_eq!((said.condition.status, said.scheduling.status, said.status.findings.len()), (Some(true), Some(true), 0), "{said:?}");
    }
}
