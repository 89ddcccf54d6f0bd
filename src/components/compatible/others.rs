//! Networks that CAPW only checks and never changes, except for the Windows switch of the AWS VPC CNI.

use serde_json::json;

use crate::api::condition::Reason;
use crate::components::finding::{Finding, Patch};
use crate::components::linux_side::{Antrea, Aws, Ovn};
use crate::components::place::ObjectRef;

pub fn antrea(antrea: &Antrea) -> Vec<Finding> {
    let (object, text) = antrea
        .config
        .clone()
        .unwrap_or_else(|| (ObjectRef::new("ConfigMap", Some("kube-system"), "antrea-config"), "data[antrea-agent.conf]".into()));
    let finding = |reason, key: &str, message: String, remedy: &str| Finding {
        reason,
        object: object.clone(),
        field: format!("{text}.{key}"),
        message,
        patch: None,
        remedy: remedy.into(),
    };
    let mut found = Vec::new();
    if antrea.encapsulation == Some("networkPolicyOnly") {
        let message = "Antrea only carries out policies, and its Windows agent does not start in this mode".to_owned();
        found.push(finding(
            Reason::TrafficModeUnsupported,
            "trafficEncapMode",
            message,
            "let Antrea make the network (encap or noEncap); this is another network for all pods, so it is best done in a new cluster",
        ));
    }
    if antrea.tunnel == Some("gre") {
        let message = "the tunnel is gre, and Antrea's Windows agent does not start with it".to_owned();
        found.push(finding(
            Reason::TunnelUnsupported,
            "tunnelType",
            message,
            "set tunnelType to geneve or vxlan and restart antrea-agent on all nodes: pods do not reach other nodes until all have restarted",
        ));
    }
    if let Some(encryption) = antrea.encryption.filter(|encryption| *encryption != "none") {
        let message = format!("traffic between nodes is encrypted with {encryption}, and Antrea's Windows agent cannot do that");
        found.push(finding(
            Reason::EncryptionOn,
            "trafficEncryptionMode",
            message,
            "set trafficEncryptionMode to none and restart antrea-agent on all nodes; what was encrypted is then plain, so this is yours to decide",
        ));
    }
    if let (Some((agent, version)), Some(asked), Some(set)) = (antrea.others.first(), &antrea.asked, &antrea.daemon_set) {
        found.push(Finding {
            reason: Reason::NotRolledOut,
            object: agent.clone(),
            field: "version".into(),
            message: format!("{set} asks for {asked}, and {} agents still have another version, e.g. {} {version}", antrea.others.len(), agent.name),
            patch: None,
            remedy: format!("wait for `kubectl rollout status {}`", set.for_kubectl()),
        });
    }
    found
}

pub fn ovn(ovn: &Ovn) -> Vec<Finding> {
    if !ovn.shown.is_empty() && ovn.asked {
        return Vec::new();
    }
    // After the feature is switched off, nodes keep the annotation, and lose the network at their next restart.
    let (reason, message, remedy) = match (ovn.asked, ovn.shown.is_empty()) {
        (true, _) => (
            Reason::NotRolledOut,
            "the hybrid overlay is asked for, and no Linux node takes part in it",
            "wait until the pods of ovnkube-node have restarted on all Linux nodes; then each has annotations k8s.ovn.org/hybrid-overlay-…",
        ),
        (false, _) => (
            Reason::HybridOverlayOff,
            "the hybrid overlay is off, and OVN-Kubernetes reaches Windows nodes by nothing else",
            "switch it on with a network of its own that overlaps no other (on OpenShift: \
             spec.defaultNetwork.ovnKubernetesConfig.hybridOverlayConfig.hybridClusterNetwork of Network.operator.openshift.io cluster); \
             CAPW cannot know which network is free",
        ),
    };
    vec![Finding { reason, object: ovn.object.clone(), field: ovn.field.clone(), message: message.into(), patch: None, remedy: remedy.into() }]
}

pub fn aws(aws: &Aws) -> Vec<Finding> {
    if aws.windows {
        return Vec::new();
    }
    let how = if aws.exists { "apply the patch" } else { "make the ConfigMap with the fields of the patch: there is none" };
    vec![Finding {
        reason: Reason::WindowsIpamOff,
        object: aws.object.clone(),
        field: aws.field.clone(),
        message: "the controller of the VPC's addresses gives none to Windows nodes".into(),
        patch: Some(Patch::Merge(json!({"data": {"enable-windows-ipam": "true"}}))),
        remedy: format!("{how}; nothing restarts, and nodes that are there get addresses too"),
    }]
}
