mod joins;

use serde_json::json;

use crate::api::components::Probes as Asked;
use crate::components::{Probe, read};
use crate::kinds::windows_cluster::decide::probes::*;

const NOW: &str = "2026-01-01T01:00:00Z";

/// A probe with all targets, except the pod on a Linux node.
fn probe() -> Probe {
    let dns = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": "10.96.0.10"}});
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": "networking: {dnsDomain: cluster.local}"}});
    Probe::new("agnhost:2.63.0", Vec::new(), &Asked::default(), &read(&[dns, settings]), &[])
}

fn nodes() -> Vec<Node> {
    let address = json!([{"type": "InternalIP", "address": "192.168.0.9"}]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "labels": {"kubernetes.io/os": "windows"}},
        "status": {"addresses": address}});
    read(&[node]).nodes
}

/// A pod of the node `win-1`, an hour old.
fn aged(mut pod: Value, status: Value) -> Value {
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["metadata"]["uid"] = json!("u-1");
    pod["status"] = status;
    pod
}

/// The pod on the Windows node.
fn pod(status: Value) -> Value {
    aged(probe().pod("win-1"), status)
}

/// The pod on a Linux node.
fn back(states: [Value; 2]) -> Value {
    let statuses: Vec<Value> = ["back", "node-port"].into_iter().zip(states).map(|(name, state)| container(name, state, json!({}))).collect();
    aged(desired_back(), json!({"phase": "Running", "containerStatuses": statuses}))
}

fn desired_back() -> Value {
    let addresses = [(ProbeTarget::Back, format!("{ADDRESS}:9376")), (ProbeTarget::NodePort, "192.168.0.9:30123".to_owned())];
    probe().back("win-1", &addresses)
}

/// The pod on a Linux node after it has reached all its targets.
fn passed_back() -> Value {
    back([ended(0, ""), ended(0, "")])
}

/// The Service of the pod on the Windows node, as the API server created it.
fn service() -> Value {
    let mut service = probe().service("win-1", &pod(json!({})));
    service["spec"]["ports"][0]["nodePort"] = json!(30123);
    service
}

const ADDRESS: &str = "10.244.3.4";

fn container(name: &str, state: Value, last: Value) -> Value {
    json!({"name": name, "state": state, "lastState": last})
}

fn ended(code: i64, message: &str) -> Value {
    json!({"terminated": {"exitCode": code, "message": message, "reason": "Error"}})
}

fn with(containers: Vec<Value>) -> Value {
    pod(json!({"phase": "Pending", "podIP": ADDRESS, "initContainerStatuses": containers}))
}

fn all_passed() -> Value {
    let mut pod = with(["service", "name", "name-server"].map(|name| container(name, ended(0, ""), json!({}))).to_vec());
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    pod
}

fn found<'a>(nodes: &[&str], pods: &'a [Value]) -> Probes<'a> {
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    probes(&nodes, &self::nodes(), &probe(), pods, NOW.parse().unwrap())
}

#[test]
fn a_pod_is_made_on_each_new_node_then_one_that_connects_to_it_and_both_go() {
    let first = found(&["win-1", "win-2"], &[]);
    assert_eq!(first.make, [probe().pod("win-1"), probe().pod("win-2")]);
    assert_eq!(first.said, ["win-1: pod probe-win-1 is made", "win-2: pod probe-win-2 is made"]);

    let there = [with(vec![])];
    let second = found(&["win-1"], &there);
    assert_eq!((second.make, second.said), (vec![probe().service("win-1", &there[0])], vec!["win-1: pod probe-win-1 is not ready".to_owned()]));

    let ready = [all_passed()];
    let third = found(&["win-1"], &ready);
    assert_eq!((third.make, third.passed.len()), (vec![probe().service("win-1", &ready[0])], 0), "what is not told yet is no reason to pass");
    assert_eq!(third.said, ["win-1: Service probe-win-1 has no NodePort yet"]);

    let ready = [all_passed(), service()];
    let fourth = found(&["win-1"], &ready);
    assert_eq!((fourth.make, fourth.passed.len(), fourth.remove.len()), (vec![desired_back()], 0, 0));
    assert_eq!(fourth.said, ["win-1: pod probe-back-win-1 is made"]);

    for (states, words) in [
        ([1, 1], "win-1: a pod on a Linux node does not reach a pod there (10.244.3.4:9376): TIMEOUT: let the packets"),
        ([0, 1], "win-1: a pod on a Linux node does not reach a pod there by a NodePort of this node (192.168.0.9:30123): TIMEOUT: let NodePorts"),
    ] {
        let both = [all_passed(), service(), back(states.map(|code| ended(code, "TIMEOUT\n")))];
        let found = found(&["win-1"], &both);
        assert_eq!((found.make.len(), found.passed.len(), found.remove.len()), (0, 0, 0));
        assert!(found.said.len() == 1 && found.said[0].starts_with(words), "{:?}", found.said);
    }
    let both = [all_passed(), service(), passed_back()];
    let passed = found(&["win-1"], &both);
    assert_eq!((passed.passed, passed.make.len(), passed.said.len()), (vec!["win-1".to_owned()], 0, 0));
    assert_eq!(passed.remove, [&both[0], &both[2]], "the Service goes with its pod");
}

#[test]
fn what_is_left_out_needs_no_pod_on_a_linux_node() {
    let asked = |skip: Value| {
        let asked: Asked = serde_json::from_value(json!({"skip": skip})).unwrap();
        Probe { reached: Probe::new("agnhost:2.63.0", Vec::new(), &asked, &read(&[]), &[]).reached, ..probe() }
    };
    let there = all_passed();
    let found = |skip: Value| probes(&["win-1".to_owned()], &nodes(), &asked(skip), std::slice::from_ref(&there), NOW.parse().unwrap());
    assert_eq!(found(json!(["Back", "NodePort"])).passed, ["win-1"]);
    let back = probe().back("win-1", &[(ProbeTarget::Back, format!("{ADDRESS}:9376"))]);
    assert_eq!((found(json!(["NodePort"])).make, found(json!(["NodePort"])).passed.len()), (vec![back], 0));
}

#[test]
fn pods_that_are_not_needed_or_prove_nothing_are_removed() {
    let mut leaving = all_passed();
    leaving["metadata"]["deletionTimestamp"] = json!(NOW);
    let of_another = json!({"metadata": {"name": "probe-win-9", "namespace": "capw-windows", "labels": {"app.kubernetes.io/name": "flannel"}}});
    let elsewhere = json!({"metadata": {"name": "probe-win-9", "namespace": "shop", "labels": {"app.kubernetes.io/name": "probe"}}});
    for (pods, removed) in [(vec![all_passed(), passed_back()], 2), (vec![leaving.clone(), of_another, elsewhere], 0)] {
        let none = found(&[], &pods);
        assert_eq!((none.remove.len(), none.make.len(), none.passed.len(), none.said.len()), (removed, 0, 0, 0));
    }
    let pods = [leaving, passed_back(), service()];
    let again = found(&["win-1"], &pods);
    assert_eq!((again.passed.len(), again.make.len(), again.remove.len()), (0, 0, 0), "a pod that is leaving proves nothing");

    let mut other = all_passed();
    other["metadata"]["annotations"] = json!({});
    let pods = [other, passed_back(), service()];
    let replaced = found(&["win-1"], &pods);
    assert_eq!((replaced.passed.len(), replaced.make.len(), replaced.remove.len()), (0, 0, 1), "it has tried something else");

    let mut moved = all_passed();
    moved["status"]["podIP"] = json!("10.244.3.5");
    let pods = [moved, passed_back(), service()];
    let replaced = found(&["win-1"], &pods);
    assert_eq!((replaced.passed.len(), replaced.remove, replaced.make.len()), (0, vec![&pods[1]], 0), "another pod was reached");

    let mut of_before = service();
    of_before["metadata"]["ownerReferences"][0]["uid"] = json!("u-0");
    let pods = [all_passed(), passed_back(), of_before];
    let made = found(&["win-1"], &pods);
    assert_eq!((made.passed.len(), made.remove.len(), made.make), (0, 0, vec![probe().service("win-1", &pods[0])]), "it goes with another pod");
}

#[test]
fn what_is_not_reached_is_said_first_by_what_the_rest_needs() {
    let passed = |name: &str| container(name, ended(0, ""), json!({}));
    let failed =
        |name: &str, message: &str| container(name, json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}), ended(1, message));
    let creating = |name: &str| container(name, json!({"waiting": {"reason": "ContainerCreating"}}), json!({}));
    for (containers, expected) in [
        (vec![], "win-1: pod probe-win-1 is not ready"),
        (vec![creating("service"), creating("name"), creating("name-server")], "win-1: pod probe-win-1 is not ready"),
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
             -1073741515, and said nothing: compare clusterDNS and clusterDomain of the node's kubelet with the Service kube-dns; in a pod there \
             `Resolve-DnsName` asks as programs do, and nslookup does not",
        ),
    ] {
        let pods = [with(containers), passed_back(), service()];
        let found = found(&["win-1"], &pods);
        assert_eq!((found.said, found.passed.len(), found.remove.len()), (vec![expected.to_owned()], 0, 0));
    }
    let unscheduled =
        [pod(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}))];
    assert_eq!(found(&["win-1"], &unscheduled).said, ["win-1: pod probe-win-1 is not ready: 0/3 nodes are available"]);
}

#[test]
fn a_pod_that_failed_as_a_whole_is_recreated_after_a_minute() {
    for (made, is_removed) in [("2026-01-01T00:59:30Z", false), ("2026-01-01T00:58:30Z", true), ("2026-01-01T02:00:00Z", false), ("", false)] {
        let mut evicted = pod(json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}));
        evicted["metadata"]["creationTimestamp"] = json!(made);
        let found = found(&["win-1"], std::slice::from_ref(&evicted));
        assert_eq!((found.remove.len() == 1, found.make.len(), found.passed.len()), (is_removed, 0, 0), "{made}");
        assert_eq!(found.said, ["win-1: pod probe-win-1 failed, and is recreated: The node was low on resource: memory."]);
    }
}

#[test]
fn the_condition_names_a_few_nodes() {
    assert_eq!(report(&found(&["win-1"], &[all_passed(), passed_back(), service()])), None);
    let names: Vec<String> = (1..=7).map(|at| format!("win-{at}")).collect();
    let (condition, after) = report(&found(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])).unwrap();
    assert_eq!((condition.reason, condition.status, after), (Reason::NodeNotVerified, Some(false), RECHECK_SOON));
    assert!(condition.message.ends_with("win-5: pod probe-win-5 is made; and 2 more"), "{}", condition.message);
}

#[test]
fn a_node_that_is_cordoned_is_not_tried_out() {
    let node = |name: &str, taint: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}},
            "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}})
    };
    let nodes = read(&[node("win-1", "node.kubernetes.io/unschedulable"), node("win-2", "os")]).nodes;
    let live = [all_passed(), passed_back()];
    let found = probes(&["win-1", "win-2"].map(str::to_owned), &nodes, &probe(), &live, NOW.parse().unwrap());
    assert_eq!((found.passed.len(), found.remove.len(), found.make), (0, 2, vec![probe().pod("win-2")]));
    assert_eq!(found.said, ["win-1: it is cordoned", "win-2: pod probe-win-2 is made"]);
}
