//! Tests with recordings of clusters and the known facts about them.

mod change;
mod input;
mod mutations;
mod page;
mod probe;
mod reach;
mod windows_pods;
mod windows_side;
mod wrong;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::cidr::{Cidr, listed};
use super::compatible::judge;
use super::finding::Finding;
use super::linux_side::{LinuxSide, read};
use super::place::ObjectRef;
use super::role;
use crate::api::condition::{ConditionType, Reason};

/// The known facts about a recording, from the sources that the recording names.
struct Known {
    name: &'static str,
    kind: &'static str,
    version: &'static str,
    mode: &'static str,
    /// The VNI and the port.
    tunnel: (Option<u32>, Option<u32>),
    kube_proxy: &'static str,
    role: &'static str,
    reasons: &'static [Reason],
}

const VXLAN: (Option<u32>, Option<u32>) = (Some(4096), Some(4789));
const DEFAULTS: (Option<u32>, Option<u32>) = (Some(1), Some(8472));
const HYBRID: (Option<u32>, Option<u32>) = (Some(4097), Some(4789));
const NONE: (Option<u32>, Option<u32>) = (None, None);
const IPTABLES: &str = "v1.36.3 iptables";
const NFTABLES: &str = "v1.36.3 nftables";

#[rustfmt::skip]
const KNOWN: [Known; 41] = {
    use Reason::*;
    type Row = (&'static str, [&'static str; 3], (Option<u32>, Option<u32>), &'static str, &'static str, &'static [Reason]);
    const fn known((name, [kind, version, mode], tunnel, kube_proxy, role, reasons): Row) -> Known {
        Known { name, kind, version, mode, tunnel, kube_proxy, role, reasons }
    }
    [
        known(("antrea-encap", ["antrea", "2.7.0", "encap"], (None, Some(6081)), IPTABLES, "Check", &[])),
        known(("antrea-noencap", ["antrea", "2.7.0", "noEncap"], NONE, IPTABLES, "Check", &[])),
        known(("aws-vpc-cni", ["aws-vpc-cni", "1.23.0", ""], NONE, "", "Check", &[WindowsIpamOff])),
        known(("azure-cni", ["azure-cni", "1.8.12", "overlay"], NONE, "", "Check", &[])),
        known(("calico-manifest", ["calico", "3.32.1", "ipip"], NONE, IPTABLES, "Refuse", &[IpipPool, StrictAffinityOff])),
        known(("calico-operator-bgp-none", ["calico", "3.32.1", "bgp"], NONE, IPTABLES, "Ask", &[WindowsDataplaneOff])),
        known(("calico-operator-bgp-windows", ["calico", "3.32.1", "bgp"], NONE, IPTABLES, "Ask", &[])),
        known(("calico-operator-bgp-with-vxlan", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Ask", &[BgpWithVxlan])),
        // kube-proxy exists, but its selector matches no node.
        known(("calico-operator-ebpf", ["calico", "3.32.1", "vxlan"], VXLAN, "", "Refuse", &[EbpfDataplane, ApiServerNotConfigured])),
        known(("calico-operator-installed", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Ask", &[StrictAffinityOff, ServiceNetworkNotConfigured, ApiServerNotConfigured])),
        known(("calico-operator-ipip", ["calico", "3.32.1", "ipip"], NONE, IPTABLES, "Refuse", &[IpipPool])),
        known(("calico-operator-sample", ["calico", "3.32.1", "vxlan-cross-subnet"], VXLAN, IPTABLES, "Ask", &[CrossSubnet, StrictAffinityOff, BgpWithVxlan, ServiceNetworkNotConfigured, ApiServerNotConfigured])),
        known(("calico-operator-vxlan", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Ask", &[WindowsDataplaneOff])),
        known(("calico-operator-windows", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Ask", &[])),
        known(("calico-small-blocks", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Ask", &[BlockTooSmall])),
        known(("calico-strict-affinity-off", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Ask", &[StrictAffinityOff])),
        known(("canal", ["canal", "0.24.4", "vxlan"], DEFAULTS, IPTABLES, "Refuse", &[NetworkUnsupported])),
        known(("cilium", ["cilium", "1.20.1", "vxlan"], NONE, IPTABLES, "Refuse", &[NetworkUnsupported])),
        known(("cilium-kube-proxy-free", ["cilium", "1.20.1", "vxlan"], NONE, "", "Refuse", &[NetworkUnsupported])),
        // Nodes show the VNI in use, but not the port.
        known(("flannel-changed-not-rolled", ["flannel", "0.28.9", "vxlan"], (Some(1), Some(4789)), IPTABLES, "Run", &[NotRolledOut])),
        known(("flannel-chart", ["flannel", "0.28.9", "vxlan"], DEFAULTS, IPTABLES, "Run", &[VniBelow4096, PortNot4789])),
        known(("flannel-direct-routing", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[DirectRouting])),
        known(("flannel-dual-stack", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[DualStack])),
        known(("flannel-gbp", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[GbpOn])),
        known(("flannel-host-gw", ["flannel", "0.28.9", "host-gw"], NONE, IPTABLES, "Run", &[])),
        known(("flannel-manifest", ["flannel", "0.28.9", "vxlan"], DEFAULTS, IPTABLES, "Run", &[VniBelow4096, PortNot4789])),
        known(("flannel-nftables", ["flannel", "0.28.9", "vxlan"], VXLAN, NFTABLES, "Run", &[])),
        known(("flannel-vxlan-4096", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[])),
        known(("flannel-wireguard", ["flannel", "0.28.9", "wireguard"], NONE, IPTABLES, "Refuse", &[NetworkUnsupported])),
        known(("ipv6-only", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[Ipv6Only])),
        known(("k0s", ["calico", "3.32.1", "vxlan"], VXLAN, IPTABLES, "Check", &[])),
        // No object of k3s shows the version of its Flannel.
        known(("k3s", ["flannel", "", "vxlan"], DEFAULTS, "", "Run", &[VniBelow4096, PortNot4789])),
        known(("kindnet", ["kindnet", "20260528", ""], NONE, "v1.36.1 iptables", "Refuse", &[NetworkUnsupported])),
        known(("kubeadm-iptables", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[])),
        known(("kubeadm-ipvs", ["flannel", "0.28.9", "vxlan"], VXLAN, "v1.36.3 ipvs", "Run", &[])),
        known(("kubeadm-nftables", ["flannel", "0.28.9", "vxlan"], VXLAN, NFTABLES, "Run", &[])),
        known(("no-linux-nodes", ["flannel", "0.28.9", "vxlan"], VXLAN, IPTABLES, "Run", &[NoLinuxNodes])),
        // The chart's image has no version.
        known(("ovn-hybrid", ["ovn-kubernetes", "", "hybrid-overlay"], HYBRID, "", "Check", &[])),
        known(("rke2-canal", ["canal", "0.28.8", "vxlan"], DEFAULTS, "", "Refuse", &[NetworkUnsupported])),
        known(("rke2-flannel", ["flannel", "0.28.8", "vxlan"], VXLAN, "", "Run", &[])),
        // The version of OpenShift: OVN-Kubernetes has no separate version.
        known(("wmco", ["ovn-kubernetes", "4.22.0", "hybrid-overlay"], HYBRID, "", "Check", &[])),
    ]
};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures")
}

pub fn recording(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(format!("{name}.yaml"))).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The reasons that findings may have.
fn all_reasons() -> impl Iterator<Item = Reason> {
    Reason::ALL.iter().copied().filter(|reason| reason.is_problem() && reason.condition() == Some(ConditionType::NetworkCompatible))
}

fn reasons(side: &LinuxSide) -> Vec<Reason> {
    judge(side).iter().map(|finding| finding.reason).collect()
}

/// Finds the object of this kind and name, e.g. `ConfigMap kube-flannel-cfg`.
fn object<'a>(objects: &'a mut [Value], named: &str) -> Option<&'a mut Value> {
    let (kind, name) = named.split_once(' ').unwrap();
    objects.iter_mut().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// A recording in which a merge patch changed or created one object, or null removed it.
pub fn changed(name: &str, named: &str, change: &Value) -> Vec<Value> {
    let mut objects = recording(name);
    if change.is_null() {
        let (kind, name) = named.split_once(' ').unwrap();
        let before = objects.len();
        objects.retain(|object| object["kind"] != kind || object["metadata"]["name"] != name);
        assert!(objects.len() < before, "{named}: there is none");
        return objects;
    }
    match object(&mut objects, named) {
        Some(object) => json_patch::merge(object, change),
        None => {
            assert!(change["apiVersion"].is_string(), "{name}: there is no {named}");
            objects.push(change.clone());
        }
    }
    objects
}

/// Applies a finding's patch as an API server does; a missing object is created.
fn apply(objects: &mut Vec<Value>, finding: &Finding) {
    let Some(patch) = &finding.patch else { return };
    if let Some(object) = objects.iter_mut().find(|object| ObjectRef::of(object) == finding.object) {
        json_patch::merge(object, patch.value());
        return;
    }
    let version = match finding.object.kind.as_str() {
        "ConfigMap" => "v1",
        "FelixConfiguration" => "crd.projectcalico.org/v1",
        "IPAMConfiguration" => "projectcalico.org/v3",
        kind => panic!("{kind}: an object that is not there"),
    };
    let ObjectRef { kind, namespace, name } = &finding.object;
    let mut made = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    json_patch::merge(&mut made, patch.value());
    objects.push(made);
}

#[test]
fn every_recording_is_named_right() {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    let files: BTreeSet<String> = files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let names: BTreeSet<String> = KNOWN.iter().map(|known| known.name.to_owned()).collect();
    assert_eq!(files, names, "each recording has a row, and each row a recording");
    assert!(names.len() >= 28);
    for known in &KNOWN {
        let side = read(&recording(known.name));
        let network = &side.network;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let found =
            (network.kind.as_str(), text(&network.version), text(&network.mode), (network.vni, network.port), role(&side).as_str(), reasons(&side));
        let expected = (known.kind, known.version.to_owned(), known.mode.to_owned(), known.tunnel, known.role, known.reasons.to_vec());
        assert_eq!(found, expected, "{}: {:#?}", known.name, judge(&side));
        let proxy = side.kube_proxy.as_ref().map(|proxy| format!("{} {}", text(&proxy.version), proxy.mode.unwrap_or_default()));
        assert_eq!(proxy.unwrap_or_default(), known.kube_proxy, "{}", known.name);
        assert_eq!(side.unreadable, [], "{}", known.name);
        for fact in [Some("kind"), network.mode.as_ref().map(|_| "mode"), network.port.map(|_| "port")].into_iter().flatten() {
            assert!(network.from.iter().any(|origin| origin.fact == fact && !origin.source.is_empty()), "{}: no source of {fact}", known.name);
        }
    }
}

#[test]
fn the_networks_of_pods_and_services_and_the_name_resolution_are_found() {
    const KUBEADM: [&str; 4] = ["10.244.0.0/16", "10.96.0.0/12", "10.96.0.10", "cluster.local"];
    // Without kubeadm's ConfigMaps, the domain is unknown.
    const UNNAMED: [&str; 4] = ["10.244.0.0/16", "10.96.0.0/12", "10.96.0.10", ""];
    const K3S: [&str; 4] = ["10.42.0.0/16", "10.43.0.0/16", "10.43.0.10", ""];
    let others = [
        ("aws-vpc-cni", ["", "", "", ""]),
        ("azure-cni", ["", "", "", ""]),
        ("calico-operator-bgp-none", UNNAMED),
        ("calico-operator-bgp-windows", UNNAMED),
        ("calico-operator-bgp-with-vxlan", UNNAMED),
        ("calico-operator-ebpf", UNNAMED),
        ("calico-operator-installed", UNNAMED),
        ("calico-operator-ipip", UNNAMED),
        ("calico-operator-sample", ["192.168.0.0/16", "10.96.0.0/12", "10.96.0.10", ""]),
        ("calico-operator-vxlan", UNNAMED),
        ("calico-operator-windows", UNNAMED),
        ("calico-small-blocks", UNNAMED),
        ("calico-strict-affinity-off", UNNAMED),
        ("flannel-dual-stack", ["10.244.0.0/16 and fd00:10:244::/56", "10.96.0.0/12 and fd00:10:96::/112", "10.96.0.10", "cluster.local"]),
        ("ipv6-only", ["fd00:10:244::/56", "fd00:10:96::/112", "fd00:10:96::a", ""]),
        ("k0s", UNNAMED),
        ("k3s", K3S),
        ("kindnet", ["10.244.0.0/16", "10.96.0.0/16", "10.96.0.10", "cluster.local"]),
        ("ovn-hybrid", ["10.244.0.0/16 and 10.132.0.0/14", "10.96.0.0/16", "10.96.0.10", ""]),
        ("rke2-canal", K3S),
        ("rke2-flannel", K3S),
        ("wmco", ["10.128.0.0/14 and 10.132.0.0/14", "172.30.0.0/16", "", ""]),
    ];
    for known in &KNOWN {
        let expected = others.iter().find(|(name, _)| *name == known.name).map_or(KUBEADM, |(_, expected)| *expected);
        let side = read(&recording(known.name));
        let dns = side.dns.as_ref().map(|dns| (dns.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), dns.domain.clone()));
        let (address, domain) = dns.unwrap_or_default();
        let found = [listed(&side.network.pod_networks), listed(&side.service_networks), address, domain.unwrap_or_default()];
        assert_eq!(found, expected, "{}", known.name);
        assert!(side.nodes.iter().all(|node| !node.addresses.is_empty()), "{}", known.name);
    }
}

#[test]
fn a_recording_may_be_a_list() {
    let objects = recording("flannel-manifest");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    assert_eq!(read(&[list]), read(&objects));
}

#[test]
fn an_empty_recording_is_unknown() {
    let side = read(&[]);
    assert_eq!((side.network.kind.as_str(), role(&side).as_str()), ("unknown", "Refuse"));
    assert_eq!(reasons(&side), [Reason::NoLinuxNodes, Reason::NetworkUnknown]);
}

#[test]
fn what_runs_on_windows_nodes_already_stays_as_it_is() {
    let set = |name: &str, image: &str, labels: Value| {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
            "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "x", "image": image}]}}}})
    };
    for (set, expected) in [
        (set("kube-flannel-ds-windows", "sigwindowstools/flannel:v0.22.1-hostprocess", json!({})), "Check"),
        (set("kube-proxy-windows", "sigwindowstools/kube-proxy:v1.36.3-flannel-hostprocess", json!({})), "Run"),
        (set("flannel", "example.com/flannel:v0.28.9", json!({"app.kubernetes.io/managed-by": "capw"})), "Run"),
    ] {
        let mut objects = recording("flannel-vxlan-4096");
        objects.push(set.clone());
        assert_eq!(role(&read(&objects)).as_str(), expected, "{set}");
    }
}

#[test]
fn of_two_networks_the_one_that_runs_is_meant() {
    // Flannel's annotations stay on nodes that were moved to Calico.
    let stay = json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-type": "vxlan"}}});
    assert_eq!(read(&changed("calico-operator-vxlan", "Node linux-1", &stay)).network.kind.as_str(), "calico");
    // Two running networks are an unknown network, and so is a running network that differs from the nodes' annotations.
    let second = recording("cilium").into_iter().find(|object| object["kind"] == "DaemonSet" && object["metadata"]["name"] == "cilium").unwrap();
    for name in ["flannel-vxlan-4096", "calico-operator-vxlan", "k3s"] {
        let mut objects = recording(name);
        objects.push(second.clone());
        assert_eq!(reasons(&read(&objects)), [Reason::NetworkUnknown], "{name}");
    }
}

#[test]
fn calico_by_manifest_with_vxlan_must_not_run_bgp() {
    let vxlan = json!({"spec": {"vxlanMode": "Always", "ipipMode": "Never"}, "metadata": {"name": "default-ipv4-ippool"}});
    for (backend, expected) in [("bird", vec![Reason::BgpWithVxlan]), ("vxlan", vec![])] {
        let mut objects = changed("calico-manifest", "IPPool default-ipv4-ippool", &vxlan);
        json_patch::merge(object(&mut objects, "ConfigMap calico-config").unwrap(), &json!({"data": {"calico_backend": backend}}));
        json_patch::merge(object(&mut objects, "IPAMConfig default").unwrap(), &json!({"spec": {"strictAffinity": true}}));
        for node in ["Node linux-1", "Node linux-2"] {
            json_patch::merge(
                object(&mut objects, node).unwrap(),
                &json!({"metadata": {"annotations": {"projectcalico.org/IPv4IPIPTunnelAddr": null}}}),
            );
        }
        let side = read(&objects);
        assert_eq!((role(&side).as_str(), reasons(&side)), ("Check", expected), "{backend}");
        assert!(judge(&side).iter().all(|finding| finding.object.to_string() == "ConfigMap kube-system/calico-config" && finding.patch.is_none()));
    }
}

#[test]
fn networks_of_pods_that_disagree_are_told_and_nodes_are_believed() {
    let written = json!({"data": {"ClusterConfiguration": "networking: {podSubnet: 10.10.0.0/16, serviceSubnet: 10.96.0.0/12}"}});
    let side = read(&changed("flannel-vxlan-4096", "ConfigMap kubeadm-config", &written));
    assert_eq!(reasons(&side), [Reason::SourcesDisagree]);
    assert_eq!(side.network.pod_networks, [Cidr::parse("10.244.0.0/16").unwrap()]);
}

/// The defaults of k3s do not apply if nodes show another network, or if a flag or an object sets one.
#[test]
fn defaults_of_k3s_give_way() {
    let block = |block: &str| json!({"spec": {"podCIDR": block, "podCIDRs": [block]}});
    let mut objects = changed("k3s", "Node linux-1", &block("10.50.0.0/24"));
    json_patch::merge(object(&mut objects, "Node linux-2").unwrap(), &block("10.50.1.0/24"));
    let side = read(&objects);
    assert_eq!((listed(&side.network.pod_networks), side.disagreements.len()), ("10.50.0.0/24 and 10.50.1.0/24".to_owned(), 0));
    let flag = json!({"metadata": {"annotations": {"k3s.io/node-args": r#"["server", "--cluster-cidr=10.50.0.0/16"]"#}}});
    json_patch::merge(object(&mut objects, "Node linux-1").unwrap(), &flag);
    assert_eq!(listed(&read(&objects).network.pod_networks), "10.50.0.0/16");
    assert_eq!(listed(&read(&changed("k3s", "ServiceCIDR kubernetes", &Value::Null)).service_networks), "10.43.0.0/16");
}

#[test]
fn names_are_told_apart() {
    let names: BTreeSet<&str> = all_reasons().map(Reason::as_str).collect();
    assert_eq!(names.len(), all_reasons().count());
    assert!(all_reasons().is_sorted(), "the order of findings is that of the list");
}
