//! Tests of the pod that tests a new node: its targets in a cluster, and that CAPW's policies admit it.

use super::windows_side::images;
use crate::api::components::{ProbeTarget, Probes};
use crate::components::tests::*;
use crate::components::{Probe, Probing, is_outdated, probed};

fn probe(objects: &[Value], slices: &[Value]) -> Probe {
    asked(&Probes::default(), objects, slices)
}

fn asked(probes: &Probes, objects: &[Value], slices: &[Value]) -> Probe {
    Probe::new("agnhost:2.63.0", Vec::new(), probes, &read(objects), slices)
}

/// An EndpointSlice of the name resolution with these endpoints and ports.
fn slice(endpoints: &Value, ports: &Value) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "kube-dns-x", "namespace": "kube-system"},
        "endpoints": endpoints, "ports": ports})
}

fn ports() -> Value {
    json!([{"name": "metrics", "protocol": "TCP", "port": 9153}, {"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 5353}])
}

fn at(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": "linux-1"})
}

#[test]
fn the_pods_of_a_cluster_with_flannel() {
    let slices = [slice(&json!([at("10.244.0.9"), at("10.244.0.5")]), &ports())];
    let probe = Probe { pull_secrets: vec!["mirror".into()], ..probe(&recording("flannel-vxlan-4096"), &slices) };
    let mut there = probe.pod("win-1");
    let addresses = [(ProbeTarget::Back, "10.244.3.4:9376".to_owned()), (ProbeTarget::NodePort, "192.168.0.9:30123".to_owned())];
    let all = [probe.pod("win-1"), probe.back("win-1", &addresses)];
    assert!(all.iter().all(|pod| !images(pod).is_empty() && images(pod).iter().all(|image| *image == "agnhost:2.63.0")), "{all:?}");
    insta::assert_snapshot!(serde_saphyr::to_string(&there).unwrap());
    insta::assert_snapshot!(serde_saphyr::to_string(&probe.back("win-1", &addresses)).unwrap());
    there["metadata"]["uid"] = json!("u-1");
    insta::assert_snapshot!(serde_saphyr::to_string(&probe.service("win-1", &there)).unwrap());
    assert_eq!(probed(&probe.pod("win-1")), Some((Probing::There, "win-1".to_owned())));
    assert_eq!(probed(&probe.back("back-win-1", &addresses)), Some((Probing::FromLinux, "back-win-1".to_owned())));
    assert_eq!(probed(&probe.pod("back-win-1")), Some((Probing::There, "back-win-1".to_owned())));
    assert_eq!(probed(&probe.service("win-1", &there)), Some((Probing::NodePort, "win-1".to_owned())));
    assert!(!is_outdated(&probe.pod("win-1"), &probe.pod("win-1")) && is_outdated(&probe.pod("win-1"), &probe.pod("win-2")));
}

#[test]
fn a_pod_on_a_linux_node_is_a_ready_one_in_the_pod_network() {
    let address = |endpoints: Value, ports: &Value| {
        let probe = probe(&recording("flannel-vxlan-4096"), &[slice(&endpoints, ports)]);
        probe.reach.into_iter().find(|(target, _)| *target == ProbeTarget::Pod).map(|(_, address)| address)
    };
    let mut unready = at("10.244.0.5");
    unready["conditions"]["ready"] = json!(false);
    let mut unsaid = at("10.244.0.5");
    unsaid["conditions"] = json!({});
    for (endpoints, ports, expected) in [
        (json!([at("10.244.0.9"), at("10.244.0.5")]), ports(), Some("10.244.0.5:5353")),
        (json!([unready, at("10.244.0.9")]), ports(), Some("10.244.0.9:5353")),
        (json!([unsaid]), ports(), Some("10.244.0.5:5353")),
        (json!([at("192.168.0.5")]), ports(), None),
        (json!([at("fd00::5"), at("no address")]), ports(), None),
        (json!([at("10.244.0.5")]), json!([{"protocol": "TCP", "port": 53}]), Some("10.244.0.5:53")),
        (json!([at("10.244.0.5")]), json!([{"name": "dns", "protocol": "UDP", "port": 53}]), None),
        (json!(null), ports(), None),
    ] {
        assert_eq!(address(endpoints.clone(), &ports).as_deref(), expected, "{endpoints} {ports}");
    }
}

#[test]
fn what_a_cluster_does_not_have_is_not_to_be_reached() {
    let targets = |objects: &[Value]| probe(objects, &[]).reach.into_iter().map(|(target, _)| target).collect::<Vec<_>>();
    assert_eq!(targets(&recording("flannel-vxlan-4096")), [ProbeTarget::Service, ProbeTarget::NameServer, ProbeTarget::Name]);
    assert_eq!(targets(&changed("flannel-vxlan-4096", "Service kube-dns", &Value::Null)), [ProbeTarget::Service]);
    let unnamed = changed("flannel-vxlan-4096", "ConfigMap kubeadm-config", &Value::Null);
    assert_eq!(targets(&unnamed), [ProbeTarget::Service, ProbeTarget::NameServer]);
}

#[test]
fn what_is_left_out_or_asked_for_is_tried_so() {
    let asked = |probes: Value| asked(&serde_json::from_value(probes).unwrap(), &recording("flannel-vxlan-4096"), &[]);
    let all = asked(json!({"outside": "proxy.example.com:3128"}));
    assert_eq!(all.reach.last(), Some(&(ProbeTarget::Outside, "proxy.example.com:3128".to_owned())));
    assert_eq!(all.reached, [ProbeTarget::Back, ProbeTarget::NodePort]);
    let some = asked(json!({"outside": "proxy.example.com:3128", "skip": ["NodePort", "Name", "Outside"]}));
    let targets: Vec<ProbeTarget> = some.reach.into_iter().map(|(target, _)| target).chain(some.reached).collect();
    assert_eq!(targets, [ProbeTarget::Service, ProbeTarget::NameServer, ProbeTarget::Back]);
}
