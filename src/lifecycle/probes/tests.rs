use serde_json::json;

use super::*;
use crate::components::{Probe, read};

const NOW: &str = "2026-01-01T01:00:00Z";

/// With all targets, but for the pod on a Linux node.
fn probe() -> Probe {
    let dns = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": "10.96.0.10"}});
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": "networking: {dnsDomain: cluster.local}"}});
    Probe::new("agnhost:2.63.0", Vec::new(), &read(&[dns, settings]), &[])
}

/// A pod of the node `win-1`, an hour old.
fn aged(mut pod: Value, status: Value) -> Value {
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["status"] = status;
    pod
}

/// The one there.
fn pod(status: Value) -> Value {
    aged(probe().pod("win-1"), status)
}

/// The one on a Linux node.
fn back(state: Value) -> Value {
    aged(probe().back("win-1", ADDRESS), json!({"phase": "Running", "containerStatuses": [container("back", state, json!({}))]}))
}

const ADDRESS: &str = "10.244.3.4";

fn container(name: &str, state: Value, last: Value) -> Value {
    json!({"name": name, "state": state, "lastState": last})
}

fn ended(code: i64, message: &str) -> Value {
    json!({"terminated": {"exitCode": code, "message": message, "reason": "Error"}})
}

fn with(containers: Vec<Value>) -> Value {
    pod(json!({"phase": "Running", "podIP": ADDRESS, "containerStatuses": containers}))
}

fn all_passed() -> Value {
    with(["service", "name", "name-server"].map(|name| container(name, ended(0, ""), json!({}))).to_vec())
}

fn found<'a>(nodes: &[&str], pods: &'a [Value]) -> Probes<'a> {
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    probes(&nodes, &[], &probe(), &pods.iter().collect::<Vec<_>>(), NOW.parse().unwrap())
}

#[test]
fn a_pod_is_made_on_each_new_node_then_one_that_connects_to_it_and_both_go() {
    let first = found(&["win-1", "win-2"], &[]);
    assert_eq!(first.make, [probe().pod("win-1"), probe().pod("win-2")]);
    assert_eq!(first.said, ["win-1: pod probe-win-1 is made", "win-2: pod probe-win-2 is made"]);

    let there = [all_passed()];
    let second = found(&["win-1"], &there);
    assert_eq!((second.make, second.passed.len(), second.remove.len()), (vec![probe().back("win-1", ADDRESS)], 0, 0));
    assert_eq!(second.said, ["win-1: pod probe-back-win-1 is made"]);

    let both = [all_passed(), back(ended(1, "TIMEOUT\n"))];
    let third = found(&["win-1"], &both);
    assert_eq!((third.make.len(), third.passed.len(), third.remove.len()), (0, 0, 0));
    let words = "win-1: a pod on a Linux node does not reach a pod there (10.244.3.4:9376): TIMEOUT: let the packets";
    assert!(third.said.len() == 1 && third.said[0].starts_with(words), "{:?}", third.said);

    let both = [all_passed(), back(ended(0, ""))];
    let passed = found(&["win-1"], &both);
    assert_eq!((passed.passed, passed.make.len(), passed.remove.len(), passed.said.len()), (vec!["win-1".to_owned()], 0, 2, 0));
}

#[test]
fn pods_that_are_not_needed_or_prove_nothing_are_removed() {
    let mut leaving = all_passed();
    leaving["metadata"]["deletionTimestamp"] = json!(NOW);
    let of_another = json!({"metadata": {"name": "probe-win-9", "namespace": "capw-windows", "labels": {"app.kubernetes.io/name": "flannel"}}});
    let elsewhere = json!({"metadata": {"name": "probe-win-9", "namespace": "shop", "labels": {"app.kubernetes.io/name": "probe"}}});
    for (pods, removed) in [(vec![all_passed(), back(ended(0, ""))], 2), (vec![leaving.clone(), of_another, elsewhere], 0)] {
        let none = found(&[], &pods);
        assert_eq!((none.remove.len(), none.make.len(), none.passed.len(), none.said.len()), (removed, 0, 0, 0));
    }
    let pods = [leaving, back(ended(0, ""))];
    let again = found(&["win-1"], &pods);
    assert_eq!((again.passed.len(), again.make.len(), again.remove.len()), (0, 0, 0), "a pod that is leaving proves nothing");

    let mut other = all_passed();
    other["metadata"]["annotations"] = json!({});
    let pods = [other, back(ended(0, ""))];
    let replaced = found(&["win-1"], &pods);
    assert_eq!((replaced.passed.len(), replaced.make.len(), replaced.remove.len()), (0, 0, 1), "it has tried something else");

    let mut moved = all_passed();
    moved["status"]["podIP"] = json!("10.244.3.5");
    let pods = [moved, back(ended(0, ""))];
    let replaced = found(&["win-1"], &pods);
    assert_eq!((replaced.passed.len(), replaced.remove, replaced.make.len()), (0, vec![&pods[1]], 0), "another pod was reached");
}

#[test]
fn what_is_not_reached_is_said_first_by_what_the_rest_needs() {
    let passed = |name: &str| container(name, ended(0, ""), json!({}));
    let failed =
        |name: &str, message: &str| container(name, json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}), ended(1, message));
    let creating = |name: &str| container(name, json!({"waiting": {"reason": "ContainerCreating"}}), json!({}));
    for (containers, expected) in [
        (vec![], "win-1: pod probe-win-1 has not ended"),
        (vec![creating("service"), creating("name"), creating("name-server")], "win-1: pod probe-win-1 has not ended"),
        (
            vec![container("service", json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}), json!({})), creating("name")],
            "win-1: pod probe-win-1 does not start: no such image",
        ),
        (
            vec![failed("name", "DNS: lookup kubernetes: no such host\n"), failed("service", "TIMEOUT\n"), failed("name-server", "TIMEOUT")],
            "win-1: a pod there does not reach the API server by the address of its Service: TIMEOUT: read the log of kube-proxy on this node, in the \
             namespace capw-windows",
        ),
        (
            vec![passed("service"), failed("name-server", "REFUSED\n"), passed("name")],
            "win-1: a pod there does not reach the cluster's name resolution by TCP (10.96.0.10:53): REFUSED: see whether the pods of the name \
             resolution are ready",
        ),
        (
            vec![passed("service"), passed("name-server"), container("name", json!({"running": {}}), ended(-1_073_741_515, ""))],
            "win-1: a pod there does not reach the API server by its name (kubernetes.default.svc.cluster.local.:443): agnhost ended with \
             -1073741515, and said nothing: compare clusterDNS and clusterDomain of the node's kubelet with the Service kube-dns",
        ),
    ] {
        let pods = [with(containers), back(ended(0, ""))];
        let found = found(&["win-1"], &pods);
        assert_eq!((found.said, found.passed.len(), found.remove.len()), (vec![expected.to_owned()], 0, 0));
    }
    let unscheduled =
        [pod(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}))];
    assert_eq!(found(&["win-1"], &unscheduled).said, ["win-1: pod probe-win-1 has not ended: 0/3 nodes are available"]);
}

#[test]
fn a_pod_that_failed_as_a_whole_is_made_anew_after_a_minute() {
    for (made, is_removed) in [("2026-01-01T00:59:30Z", false), ("2026-01-01T00:58:30Z", true), ("2026-01-01T02:00:00Z", false), ("", false)] {
        let mut evicted = pod(json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}));
        evicted["metadata"]["creationTimestamp"] = json!(made);
        let found = found(&["win-1"], std::slice::from_ref(&evicted));
        assert_eq!((found.remove.len() == 1, found.make.len(), found.passed.len()), (is_removed, 0, 0), "{made}");
        assert_eq!(found.said, ["win-1: pod probe-win-1 failed, and is made anew: The node was low on resource: memory."]);
    }
}

#[test]
fn the_condition_names_a_few_nodes() {
    assert_eq!(report(&found(&["win-1"], &[all_passed(), back(ended(0, ""))])), None);
    let names: Vec<String> = (1..=7).map(|at| format!("win-{at}")).collect();
    let (condition, after) = report(&found(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])).unwrap();
    assert_eq!((condition.reason, condition.status, after), (Reason::NodeNotVerified, Some(false), LOOK_SOON));
    assert!(condition.message.ends_with("win-5: pod probe-win-5 is made; and 2 more"), "{}", condition.message);
}

#[test]
fn a_node_that_is_cordoned_is_not_tried_out() {
    let node = |name: &str, taint: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}},
            "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}})
    };
    let nodes = read(&[node("win-1", "node.kubernetes.io/unschedulable"), node("win-2", "os")]).nodes;
    let live = [all_passed(), back(ended(0, ""))];
    let found = probes(&["win-1", "win-2"].map(str::to_owned), &nodes, &probe(), &live.iter().collect::<Vec<_>>(), NOW.parse().unwrap());
    assert_eq!((found.passed.len(), found.remove.len(), found.make), (0, 2, vec![probe().pod("win-2")]));
    assert_eq!(found.said, ["win-1: it is cordoned", "win-2: pod probe-win-2 is made"]);
}
