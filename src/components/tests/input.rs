//! Tests with arbitrary input: each problem is a finding with object and field, and nothing panics.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{KNOWN, changed, recording};
use crate::api::condition::Reason;
use crate::components::{judge, read, role};

const FLANNEL: &str = "ConfigMap kube-flannel-cfg";
const NET_CONF: &str = "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json]";

fn net_conf(text: impl Into<String>) -> Value {
    json!({"data": {"net-conf.json": text.into()}})
}

#[rustfmt::skip]
#[test]
fn what_cannot_be_understood_is_named_with_object_and_field() {
    let nested = "[".repeat(100_000);
    let huge = format!("{{\"Network\": \"{}\"}}", "1".repeat(2 << 20));
    let cases = [
        ("flannel-vxlan-4096", FLANNEL, net_conf("{"), NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, net_conf("\u{0}\u{fffd}garbage"), NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, net_conf("7"), NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, net_conf(nested), NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, net_conf(huge), NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, json!({"data": {"net-conf.json": {"Backend": 1}}}), NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, Value::Null, NET_CONF),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Network": "10.244.0.0", "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Network"),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Backend": {"Type": "vxlan", "VNI": "4096", "Port": 4789}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.VNI"),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Backend": {"Type": "vxlan", "VNI": -1, "Port": 4789}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.VNI"),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Backend": {"Type": "vxlan", "VNI": 16777216, "Port": 4789}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.VNI"),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Backend": {"Type": "vxlan", "VNI": 4096, "Port": 1e300}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.Port"),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789, "GBP": "yes"}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.GBP"),
        ("flannel-vxlan-4096", FLANNEL, net_conf(r#"{"Backend": {"Type": 5}}"#), "ConfigMap kube-flannel/kube-flannel-cfg data[net-conf.json].Backend.Type"),
        ("flannel-vxlan-4096", "Node linux-1", json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-data": "{"}}}), "Node linux-1 metadata.annotations[flannel.alpha.coreos.com/backend-data]"),
        ("flannel-vxlan-4096", "Node linux-1", json!({"spec": {"podCIDR": "x", "podCIDRs": null}}), "Node linux-1 spec.podCIDR"),
        ("flannel-vxlan-4096", "Node linux-1", json!({"spec": {"podCIDRs": ["10.244.0.0/99"]}}), "Node linux-1 spec.podCIDRs[0]"),
        ("flannel-vxlan-4096", "Node linux-1", json!({"status": {"addresses": [{"type": "InternalIP", "address": "node"}]}}), "Node linux-1 status.addresses[0].address"),
        ("flannel-vxlan-4096", "ServiceCIDR kubernetes", json!({"spec": {"cidrs": 7}}), "ServiceCIDR kubernetes spec.cidrs"),
        ("flannel-vxlan-4096", "ConfigMap kube-proxy", json!({"data": {"config.conf": "mode: [userspace"}}), "ConfigMap kube-system/kube-proxy data[config.conf]"),
        ("flannel-vxlan-4096", "ConfigMap kube-proxy", json!({"data": {"config.conf": "mode: userspace"}}), "ConfigMap kube-system/kube-proxy data[config.conf].mode"),
        ("flannel-vxlan-4096", "ConfigMap kubeadm-config", json!({"data": {"ClusterConfiguration": "- 1\n 2"}}), "ConfigMap kube-system/kubeadm-config data.ClusterConfiguration"),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"calicoNetwork": {"bgp": 1}}}), "Installation default spec.calicoNetwork.bgp"),
        ("calico-operator-vxlan", "Installation default", json!({"spec": {"calicoNetwork": {"ipPools": [{"cidr": "10.244.0.0/16", "encapsulation": "Carrier pigeon"}]}}}), "Installation default spec.calicoNetwork.ipPools[0].encapsulation"),
        ("calico-operator-vxlan", "IPPool default-ipv4-ippool", json!({"spec": {"vxlanMode": "Sometimes"}}), "IPPool default-ipv4-ippool spec.vxlanMode"),
        ("calico-operator-vxlan", "IPPool default-ipv4-ippool", json!({"spec": {"blockSize": 1000}}), "IPPool default-ipv4-ippool spec.blockSize"),
        ("calico-operator-vxlan", "FelixConfiguration default", json!({"spec": {"vxlanPort": "4789"}}), "FelixConfiguration default spec.vxlanPort"),
        ("calico-operator-vxlan", "IPAMConfiguration default", json!({"spec": {"strictAffinity": "true"}}), "IPAMConfiguration default spec.strictAffinity"),
        ("antrea-encap", "ConfigMap antrea-config", json!({"data": {"antrea-agent.conf": "tunnelType: carrier-pigeon"}}), "ConfigMap kube-system/antrea-config data[antrea-agent.conf].tunnelType"),
        ("ovn-hybrid", "ConfigMap ovn-config", json!({"data": {"net_cidr": "ten"}}), "ConfigMap ovn-kubernetes/ovn-config data.net_cidr"),
        ("k3s", "Node linux-1", json!({"metadata": {"annotations": {"k3s.io/node-args": r#"["server", "--cluster-cidr", "ten"]"#}}}), "Node linux-1 metadata.annotations[k3s.io/node-args]"),
        ("aws-vpc-cni", "ConfigMap amazon-vpc-cni", json!({"data": {"enable-windows-ipam": "yes please"}}), "ConfigMap kube-system/amazon-vpc-cni data.enable-windows-ipam"),
    ];
    for (name, object, change, at) in cases {
        let findings = judge(&read(&changed(name, object, &change)));
        let unreadable: Vec<_> = findings.iter().filter(|finding| finding.reason == Reason::Unreadable).collect();
        let case = format!("{name} {object} {at}");
        let found = unreadable.iter().find(|finding| format!("{} {}", finding.object, finding.field) == at).unwrap_or_else(|| panic!("{case}: {findings:#?}"));
        assert!(found.message.len() < 1000, "{case}: {}", found.message);
    }
}

/// An unreadable setting must not be treated as the default of a missing setting.
#[test]
fn an_unreadable_setting_gives_no_finding_of_its_default() {
    let side = read(&changed(
        "flannel-vxlan-4096",
        FLANNEL,
        &net_conf(r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": "4096", "Port": "4789"}}"#),
    ));
    assert_eq!(super::reasons(&side), [Reason::Unreadable; 2]);
}

#[test]
fn many_objects_and_long_names_are_read() {
    let node = |number: usize| {
        let mut node = recording("flannel-vxlan-4096").swap_remove(0);
        node["metadata"]["name"] = json!(format!("{}-{number}", "n".repeat(250)));
        node["spec"] = json!({"podCIDR": "garbage"});
        node
    };
    let mut objects = recording("flannel-vxlan-4096");
    objects.extend((0..500).map(node));
    let side = read(&objects);
    assert_eq!((side.network.kind.as_str(), side.nodes.len()), ("flannel", 502));
    assert_eq!(side.unreadable.len(), 50, "a few are enough");
}

#[test]
fn objects_of_no_shape_are_passed_over() {
    let objects = [
        json!(null),
        json!(7),
        json!("x"),
        json!([]),
        json!({}),
        json!({"kind": 7}),
        json!({"kind": "Node", "apiVersion": "v1"}),
        json!({"kind": "List", "items": 3}),
    ];
    let side = read(&objects);
    assert_eq!((side.network.kind.as_str(), side.nodes.len()), ("unknown", 1));
}

/// Collects the paths of all values of an object.
pub fn ways(value: &Value, way: &str, found: &mut Vec<String>) {
    found.push(way.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| ways(value, &format!("{way}/{}", key.replace('~', "~0").replace('/', "~1")), found))
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| ways(value, &format!("{way}/{index}"), found)),
        _ => {}
    }
}

pub fn strange() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|flag| json!(flag)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,40}".prop_map(|text| json!(text)),
        "(\\{|\\[|\"|:|,|\\}|[0-9.]{1,3}/){0,30}".prop_map(|text| json!(text)),
        Just(json!([{}, 7, "x"])),
        Just(json!({"": {"": []}})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_anywhere_is_read(known in 0..KNOWN.len(), object: prop::sample::Index, at: prop::sample::Index, value in strange()) {
        let mut objects = recording(KNOWN[known].name);
        let object = object.index(objects.len());
        let mut found = Vec::new();
        ways(&objects[object], "", &mut found);
        let way = at.get(&found).clone();
        *objects[object].pointer_mut(&way).unwrap() = value;
        let side = read(&objects);
        role(&side);
        for finding in judge(&side) {
            prop_assert!(!finding.field.is_empty() && !finding.message.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
        }
    }
}
