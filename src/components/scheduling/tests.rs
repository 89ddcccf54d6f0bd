//! Tests with DaemonSets from charts and manifests.

use serde_json::{Value, json};

use crate::components::scheduling::misplaced;

/// The DaemonSets that the real controller places in the story *Windows side*.
fn daemon_sets() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("daemon-sets.yaml")).unwrap()
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn windows(name: &str, taints: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}}, "spec": {"taints": taints}})
}

#[test]
fn what_would_hang_or_be_kept_away_is_found_before_the_first_node_and_after() {
    let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified", "effect": "NoSchedule"}]);
    for nodes in [vec![], vec![windows("win-1", &taints)]] {
        for set in daemon_sets() {
            let (name, expected) = (text(&set, "/metadata/name").to_owned(), text(&set, "/metadata/annotations/expected").to_owned());
            let mut objects = nodes.clone();
            objects.push(set);
            let found: Vec<String> = misplaced(&objects).into_iter().map(|finding| finding.reason.to_string()).collect();
            assert_eq!(found.concat(), expected, "{name}, {} nodes", nodes.len());
        }
    }
}

#[test]
fn the_patch_puts_it_right() {
    for mut set in daemon_sets() {
        let Some(found) = misplaced(std::slice::from_ref(&set)).pop() else { continue };
        json_patch::merge(&mut set, found.patch.unwrap().value());
        assert_eq!(misplaced(std::slice::from_ref(&set)), [], "{set:#}");
    }
}

#[test]
fn what_a_tool_manages_is_changed_there_and_nodes_are_named() {
    let mut set = daemon_sets().swap_remove(1);
    set["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "monitoring"});
    let found = misplaced(std::slice::from_ref(&set)).remove(0);
    assert!(found.patch.is_none() && found.remedy.contains("the Helm release monitoring manages it"), "{}", found.remedy);
    let plain = daemon_sets().into_iter().find(|set| text(set, "/metadata/name") == "no-toleration").unwrap();
    let taint = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let message = |mut objects: Vec<Value>| {
        objects.push(plain.clone());
        misplaced(&objects).pop().map(|finding| finding.message)
    };
    assert_eq!(message(vec![windows("win-1", &taint)]), None);
    let free = (1..=5).map(|n| windows(&format!("win-{n}"), &json!([]))).collect();
    let found = message(free).unwrap();
    assert!(found.ends_with("win-1, win-2, win-3 and 2 more"), "{found}");
    let found = message(vec![windows("win-1", &taint), windows("win-2", &json!([]))]).unwrap();
    assert!(found.ends_with("hang on Windows nodes: win-2"), "{found}");
}
