//! Tests of wrong settings: each has its own reason, its finding names object and field, and its patch fixes it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{KNOWN, all_reasons, apply, changed, reasons, recording};
use crate::api::condition::Reason::{self, *};
use crate::components::{Finding, Patch, is_warning, judge, read};

/// A recording with one changed object, and the expected finding.
struct Wrong {
    recording: &'static str,
    object: &'static str,
    change: Value,
    reason: Reason,
    /// The object and field of the finding.
    at: &'static str,
    patch: bool,
}

fn net_conf(backend: Value) -> Value {
    json!({"data": {"net-conf.json": json!({"Network": "10.244.0.0/16", "Backend": backend}).to_string()}})
}

fn agent_conf(text: &str) -> Value {
    json!({"data": {"antrea-agent.conf": text}})
}

const FLANNEL: &str = "ConfigMap kube-flannel-cfg";
const FELIX: &str = "FelixConfiguration default";

#[rustfmt::skip]
fn wrong() -> Vec<Wrong> {
    let of = |recording, object, change, reason, at, patch| Wrong { recording, object, change, reason, at, patch };
    let flannel = |backend, reason, at| of("flannel-vxlan-4096", FLANNEL, net_conf(backend), reason, at, true);
    let calico = |object, change, reason, at, patch| of("calico-operator-windows", object, change, reason, at, patch);
    vec![
        flannel(json!({"Type": "vxlan", "Port": 4789}), VniBelow4096, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.VNI"),
        flannel(json!({"Type": "vxlan", "vni": 4095, "Port": 4789}), VniBelow4096, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.VNI"),
        flannel(json!({"Type": "vxlan", "VNI": 69632, "Port": 4789}), VniAbove65535, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.VNI"),
        flannel(json!({"Type": "vxlan", "VNI": 4096}), PortNot4789, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.Port"),
        flannel(json!({"type": "vxlan", "VNI": 4096, "PORT": 8472}), PortNot4789, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.Port"),
        flannel(json!({"Type": "vxlan", "VNI": 4096, "Port": 4789, "directrouting": true}), DirectRouting, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.DirectRouting"),
        flannel(json!({"Type": "vxlan", "VNI": 4096, "Port": 4789, "GBP": true}), GbpOn, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.GBP"),
        of("flannel-vxlan-4096", FLANNEL, net_conf(json!({"Type": "vxlan", "VNI": 4097, "Port": 4789})), NotRolledOut, "Node linux-1 metadata.annotations[flannel.alpha.coreos.com/backend-data]", false),
        of("flannel-host-gw", FLANNEL, net_conf(json!({"Type": "vxlan", "VNI": 4096, "Port": 4789})), NotRolledOut, "Node linux-1 metadata.annotations[flannel.alpha.coreos.com/backend-type]", false),
        of("flannel-host-gw", FLANNEL, net_conf(json!({"Type": "udp"})), NetworkUnsupported, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.Type", false),
        // flanneld's default backend is udp.
        of("flannel-vxlan-4096", FLANNEL, json!({"data": {"net-conf.json": r#"{"Network": "10.244.0.0/16"}"#}}), NetworkUnsupported, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.Type", false),
        of("flannel-vxlan-4096", "Node linux-1", json!({"spec": {"podCIDR": "10.244.0.0/28", "podCIDRs": ["10.244.0.0/28"]}}), BlockTooSmall, "Node linux-1 spec.podCIDR", false),
        of("flannel-vxlan-4096", "Node linux-1", json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-v6-data": "{}"}}}), DualStack, "Node linux-1 metadata.annotations[flannel.alpha.coreos.com/backend-v6-data]", false),
        of("flannel-host-gw", FLANNEL, json!({"data": {"net-conf.json": r#"{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:10:244::/56", "Backend": {"Type": "host-gw"}}"#}}), DualStack, "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].EnableIPv6", false),
        of("flannel-vxlan-4096", "Node linux-2", json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.244.9.9"}]}}), NetworksOverlap, "Node linux-2 status.addresses", false),
        of("flannel-vxlan-4096", "ServiceCIDR kubernetes", json!({"spec": {"cidrs": ["10.244.128.0/17"]}}), NetworksOverlap, "ServiceCIDR kubernetes spec.cidrs", false),
        of("flannel-vxlan-4096", "ServiceCIDR kubernetes", json!({"spec": {"cidrs": ["fd00:10:96::/112"]}}), Ipv6Only, "ServiceCIDR kubernetes spec.cidrs", false),
        of("k3s", "Node linux-1", json!({"metadata": {"annotations": {"k3s.io/node-args": r#"["server", "--flannel-conf", "/etc/flannel.json"]"#}}}), PortUnknown, "Node linux-1 metadata.annotations[k3s.io/node-args]", false),
        of("flannel-vxlan-4096", "Node linux-2", json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-type": "host-gw"}}}), NotRolledOut, "Node linux-2 metadata.annotations[flannel.alpha.coreos.com/backend-type]", false),
        of("k0s", "ServiceCIDR kubernetes", Value::Null, ServiceNetworkUnknown, "ServiceCIDR kubernetes spec.cidrs", false),
        of("flannel-vxlan-4096", "ConfigMap kubeadm-config", json!({"data": {"ClusterConfiguration": "networking: {serviceSubnet: \"10.97.0.0/16,x\"}"}}), Unreadable, "ConfigMap kube-system/kubeadm-config data.ClusterConfiguration.networking.serviceSubnet", false),
        of("flannel-vxlan-4096", "ConfigMap kubeadm-config", json!({"data": {"ClusterConfiguration": "networking: {serviceSubnet: 172.30.0.0/16}"}}), SourcesDisagree, "ConfigMap kube-system/kubeadm-config data.ClusterConfiguration.networking.serviceSubnet", false),
        calico("IPPool default-ipv4-ippool", json!({"spec": {"vxlanMode": "Never", "ipipMode": "CrossSubnet"}}), IpipPool, "IPPool default-ipv4-ippool spec.ipipMode", false),
        calico("IPPool default-ipv4-ippool", json!({"spec": {"vxlanMode": "CrossSubnet"}}), CrossSubnet, "IPPool default-ipv4-ippool spec.vxlanMode", false),
        calico("Installation default", json!({"spec": {"calicoNetwork": {"ipPools": [{"cidr": "10.244.0.0/16", "encapsulation": "None"}]}}}), NotRolledOut, "Installation default spec.calicoNetwork.ipPools[0].encapsulation", false),
        calico("Installation default", json!({"spec": {"calicoNetwork": {"bgp": null}}}), BgpWithVxlan, "Installation default spec.calicoNetwork.bgp", true),
        calico("Installation default", json!({"spec": {"calicoNetwork": {"linuxDataplane": "BPF"}}}), EbpfDataplane, "Installation default spec.calicoNetwork.linuxDataplane", false),
        calico("Installation default", json!({"spec": {"calicoNetwork": {"linuxDataplane": "VPP"}}}), NetworkUnsupported, "Installation default spec.calicoNetwork.linuxDataplane", false),
        calico(FELIX, json!({"spec": {"bpfEnabled": true}}), EbpfDataplane, "FelixConfiguration default spec.bpfEnabled", false),
        calico(FELIX, json!({"spec": {"vxlanVNI": 1}}), VniBelow4096, "FelixConfiguration default spec.vxlanVNI", true),
        calico(FELIX, json!({"spec": {"vxlanVNI": 70000}}), VniAbove65535, "FelixConfiguration default spec.vxlanVNI", true),
        calico(FELIX, json!({"spec": {"vxlanPort": 8472}}), PortNot4789, "FelixConfiguration default spec.vxlanPort", true),
        calico("IPAMConfiguration default", Value::Null, StrictAffinityOff, "IPAMConfiguration default spec.strictAffinity", true),
        calico("IPAMConfiguration default", json!({"spec": {"strictAffinity": null}}), StrictAffinityOff, "IPAMConfiguration default spec.strictAffinity", true),
        calico("IPPool default-ipv4-ippool", json!({"spec": {"blockSize": 28}}), BlockTooSmall, "IPPool default-ipv4-ippool spec.blockSize", false),
        calico("IPPool six", json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "six"}, "spec": {"cidr": "fd00:10:244::/56"}}), DualStack, "IPPool six spec.cidr", false),
        calico("IPPool default-ipv4-ippool", json!({"spec": {"cidr": "fd00:10:244::/56"}}), Ipv6Only, "IPPool default-ipv4-ippool spec.cidr", false),
        of("calico-operator-bgp-windows", "Installation default", json!({"spec": {"calicoNetwork": {"bgp": "Disabled"}}}), NetworkUnsupported, "Installation default spec.calicoNetwork.bgp", false),
        calico("Installation default", json!({"spec": {"serviceCIDRs": null}}), ServiceNetworkNotConfigured, "Installation default spec.serviceCIDRs", true),
        calico("ServiceCIDR more", json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"}, "spec": {"cidrs": ["10.120.0.0/16"]}}), ServiceNetworkNotConfigured, "Installation default spec.serviceCIDRs", true),
        calico("ConfigMap kubernetes-services-endpoint", Value::Null, ApiServerNotConfigured, "ConfigMap tigera-operator/kubernetes-services-endpoint data.KUBERNETES_SERVICE_HOST", true),
        calico("ConfigMap kubernetes-services-endpoint", json!({"data": {"KUBERNETES_SERVICE_PORT": null}}), ApiServerNotConfigured, "ConfigMap tigera-operator/kubernetes-services-endpoint data.KUBERNETES_SERVICE_HOST", true),
        calico("Installation default", json!({"spec": {"windowsNodes": {"cniBinDir": "/k/azurecni/bin"}}}), CniFoldersDiffer, "Installation default spec.windowsNodes.cniBinDir", true),
        calico("Installation default", json!({"spec": {"windowsNodes": {"cniConfigDir": "D:\\etc\\cni\\net.d"}}}), CniFoldersDiffer, "Installation default spec.windowsNodes.cniConfigDir", true),
        // The operator uses the folders of the cloud.
        calico("Installation default", json!({"spec": {"kubernetesProvider": "EKS", "windowsNodes": null}}), CniFoldersDiffer, "Installation default spec.windowsNodes.cniBinDir", true),
        calico("Installation default", json!({"spec": {"calicoNetwork": {"windowsDataplane": "Disabled"}}}), WindowsDataplaneOff, "Installation default spec.calicoNetwork.windowsDataplane", true),
        calico("Installation default", json!({"spec": {"calicoNetwork": {"windowsDataplane": null}}}), WindowsDataplaneOff, "Installation default spec.calicoNetwork.windowsDataplane", true),
        calico("TigeraStatus calico-windows", json!({"status": {"conditions": [{"type": "Degraded", "status": "True", "message": "no DNS"}]}}), OperatorDegraded, "TigeraStatus calico-windows status.conditions", false),
        of("k0s", "IPAMConfig default", json!({"spec": {"strictAffinity": false}}), StrictAffinityOff, "IPAMConfig default spec.strictAffinity", true),
        of("k0s", "DaemonSet calico-node", json!({"spec": {"template": {"spec": {"containers": [{"name": "calico-node", "env": [{"name": "FELIX_VXLANVNI", "value": "100"}, {"name": "CALICO_NETWORKING_BACKEND", "value": "vxlan"}]}]}}}}), VniBelow4096, "DaemonSet kube-system/calico-node spec.template.spec.containers[0].env[0].value (FELIX_VXLANVNI)", false),
        of("k0s", "DaemonSet calico-node", json!({"spec": {"template": {"spec": {"containers": [{"name": "calico-node", "env": [{"name": "CALICO_NETWORKING_BACKEND", "value": "bird"}]}]}}}}), BgpWithVxlan, "DaemonSet kube-system/calico-node spec.template.spec.containers[0].env[0].value", false),
        of("antrea-encap", "ConfigMap antrea-config", agent_conf("trafficEncapMode: networkPolicyOnly"), TrafficModeUnsupported, "ConfigMap kube-system/antrea-config data[antrea-agent.conf].trafficEncapMode", false),
        of("antrea-encap", "ConfigMap antrea-config", agent_conf("tunnelType: gre"), TunnelUnsupported, "ConfigMap kube-system/antrea-config data[antrea-agent.conf].tunnelType", false),
        of("antrea-encap", "ConfigMap antrea-config", agent_conf("trafficEncryptionMode: wireGuard"), EncryptionOn, "ConfigMap kube-system/antrea-config data[antrea-agent.conf].trafficEncryptionMode", false),
        of("antrea-encap", "AntreaAgentInfo linux-2", json!({"version": "v2.6.3"}), NotRolledOut, "AntreaAgentInfo linux-2 version", false),
        of("ovn-hybrid", "DaemonSet ovnkube-node", json!({"spec": {"template": {"spec": {"containers": [{"name": "ovnkube-controller"}]}}}}), HybridOverlayOff, "DaemonSet ovn-kubernetes/ovnkube-node spec.template.spec.containers[].env[OVN_HYBRID_OVERLAY_ENABLE]", false),
        of("wmco", "ConfigMap ovnkube-config", json!({"data": {"ovnkube.conf": "[default]\ncluster-subnets=\"10.128.0.0/14/23\"\n"}}), HybridOverlayOff, "ConfigMap openshift-ovn-kubernetes/ovnkube-config data[ovnkube.conf][hybridoverlay].enabled", false),
        of("aws-vpc-cni", "ConfigMap amazon-vpc-cni", json!({"data": {"enable-windows-ipam": null}}), WindowsIpamOff, "ConfigMap kube-system/amazon-vpc-cni data.enable-windows-ipam", true),
        of("aws-vpc-cni", "ConfigMap amazon-vpc-cni", Value::Null, WindowsIpamOff, "ConfigMap kube-system/amazon-vpc-cni data.enable-windows-ipam", true),
        of("flannel-vxlan-4096", "DaemonSet cilium", json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cilium", "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": [{"name": "cilium-agent", "image": "quay.io/cilium/cilium:v1.20.1"}]}}}}), NetworkUnknown, "Node linux-1 metadata.annotations", false),
    ]
}

fn at(finding: &Finding) -> String {
    format!("{} {}", finding.object, finding.field)
}

#[test]
fn every_wrong_setting_is_named_with_object_and_field() {
    for wrong in wrong() {
        let findings = judge(&read(&changed(wrong.recording, wrong.object, &wrong.change)));
        let case = format!("{} {} {}", wrong.recording, wrong.object, wrong.change);
        let found = findings.iter().find(|finding| finding.reason == wrong.reason).unwrap_or_else(|| panic!("{case}: {findings:#?}"));
        assert_eq!((at(found).as_str(), found.patch.is_some()), (wrong.at, wrong.patch), "{case}");
        assert!(!found.message.is_empty() && !found.remedy.is_empty(), "{case}");
        let before = reasons(&read(&recording(wrong.recording)));
        assert!(wrong.recording == "aws-vpc-cni" || !before.contains(&wrong.reason), "{case}: it was there before");
    }
}

#[test]
fn every_reason_has_a_wrong_setting() {
    let of_recordings = KNOWN.iter().flat_map(|known| known.reasons.iter().copied());
    let found: BTreeSet<Reason> = wrong().iter().map(|wrong| wrong.reason).chain(of_recordings).collect();
    assert_eq!(found, all_reasons().collect());
    let patched = wrong().iter().filter(|wrong| wrong.patch).map(|wrong| wrong.reason).collect::<BTreeSet<_>>();
    assert!(found.len() >= 16 && patched.len() >= 8, "{patched:?}");
}

/// After a patch, the only new findings may be a missing rollout, or the final switch.
#[test]
fn a_patch_puts_right_what_it_is_for_and_nothing_comes_of_it() {
    let recordings = KNOWN.iter().map(|known| (known.name.to_owned(), recording(known.name)));
    let cases =
        wrong().into_iter().map(|wrong| (format!("{} {}", wrong.recording, wrong.change), changed(wrong.recording, wrong.object, &wrong.change)));
    let mut patches = 0;
    for (case, objects) in recordings.chain(cases) {
        let before = judge(&read(&objects));
        let mut all = objects.clone();
        for finding in before.iter().filter(|finding| finding.patch.is_some()) {
            let mut one = objects.clone();
            apply(&mut one, finding);
            let after = judge(&read(&one));
            assert!(!after.iter().any(|other| (other.reason, at(other)) == (finding.reason, at(finding))), "{case}: {finding:#?} stays");
            // The switch is the last finding, after all other problems are fixed.
            let is_next = |other: &Finding| [NotRolledOut, WindowsDataplaneOff].contains(&other.reason);
            let came = after.iter().find(|other| !is_next(other) && !before.iter().any(|known| known.reason == other.reason));
            assert!(came.is_none(), "{case}: {finding:#?} brings {came:#?}");
            apply(&mut all, finding);
            patches += 1;
        }
        judge(&read(&all)).iter().filter(|finding| finding.reason == WindowsDataplaneOff).for_each(|finding| apply(&mut all, finding));
        let left = judge(&read(&all));
        assert!(left.iter().all(|finding| finding.patch.is_none()), "{case}: {left:#?}");
    }
    assert!(patches > 20, "{patches}");
}

#[test]
fn the_patch_of_a_manifest_is_exact() {
    let findings = judge(&read(&recording("flannel-manifest")));
    let patch = findings[0].patch.as_ref().unwrap().value();
    let text = patch["data"]["net-conf.json"].as_str().unwrap();
    let written: Value = serde_json::from_str(text).unwrap();
    let expected = json!({"Network": "10.244.0.0/16", "EnableNFTables": false, "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}});
    assert_eq!((patch.as_object().unwrap().len(), patch["data"].as_object().unwrap().len(), written), (1, 1, expected));
    assert!(findings.iter().all(|finding| finding.patch.as_ref().map(Patch::value) == Some(patch)), "one must not undo the other");
    assert!(findings[0].remedy.contains("`kubectl rollout restart -n kube-flannel daemonset/kube-flannel-ds`"), "{}", findings[0].remedy);
}

#[test]
fn findings_are_worst_first() {
    for known in &KNOWN {
        let severities: Vec<bool> = reasons(&read(&recording(known.name))).into_iter().map(is_warning).collect();
        assert!(severities.is_sorted(), "{}", known.name);
    }
    let all: Vec<bool> = all_reasons().map(is_warning).collect();
    assert!(all.is_sorted() && all.contains(&true));
}
