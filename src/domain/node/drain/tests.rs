//! Tests which pods a drain evicts, waits for, deletes by force, or leaves.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::api::capi::DRAIN_LABEL;
use crate::api::condition::Reason;
use crate::api::machine::WindowsMachine;
use crate::api::pool::Drain;
use crate::domain::node::drain::pod::Stand;
use crate::domain::node::drain::{DrainStep, Limits, ObservedNode, Plan, PodOnNode, Victim, conditions, decide, elapsed, given_up, is_over, pod};

/// When the removal was requested.
const SINCE: i64 = 1_767_225_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(SINCE + second).unwrap()
}

fn node(ready: &str, cordoned: bool) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "win-1"}, "spec": {"unschedulable": cordoned},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    .unwrap()
}

/// A pod of a ReplicaSet, with these changes.
fn pod(name: &str, patch: Value) -> PodOnNode {
    let mut value = json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]},
        "status": {"phase": "Running"}});
    json_patch::merge(&mut value, &patch);
    serde_json::from_value(value).unwrap()
}

/// A terminating pod whose grace period is over at that second.
fn ending(name: &str, second: i64, grace: i64) -> PodOnNode {
    pod(name, json!({"metadata": {"deletionTimestamp": at(second).to_string(), "deletionGracePeriodSeconds": grace}}))
}

fn limits(whole: u64, hung: u64) -> Limits {
    let limit = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    Limits { whole: limit(whole), hung: limit(hung) }
}

fn look(node: &Node, pods: Option<&[PodOnNode]>, limits: Limits, second: i64) -> Plan {
    let endings = told(pods.unwrap_or_default());
    decide(&ObservedNode { node, pods, endings: &endings, since: at(0), limits, excluded: false }, at(second))
}

/// When the pods were deleted, as an observer would have recorded it.
fn told(pods: &[PodOnNode]) -> HashMap<String, Timestamp> {
    let told = |pod: &PodOnNode| {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        Some((pod.metadata.uid.clone()?, pod.metadata.deletion_timestamp.as_ref()?.0 - grace))
    };
    pods.iter().filter_map(told).collect()
}

fn stand(pod: &PodOnNode, hung: Option<Duration>, unreachable: bool) -> Stand {
    let since = told(std::slice::from_ref(pod)).into_values().next();
    pod::stand(pod, hung, unreachable, since.map_or(Duration::ZERO, |since| elapsed(since, at(100))))
}

/// An API server may answer with pods of any size.
#[test]
fn of_a_pod_nothing_is_kept_but_what_is_read() {
    let pod = pod(
        "a",
        json!({
            "metadata": {"annotations": {"kubernetes.io/config.mirror": "h", "a": "1"}, "labels": {DRAIN_LABEL: "skip", "b": "2"}, "finalizers": ["c/d"],
                "managedFields": [{"manager": "e"}]},
            "spec": {"containers": [{"name": "f", "image": "g"}], "volumes": [{"name": "h", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "i"}]},
            "status": {"phase": "Running", "message": "j"},
        }),
    );
    let volumes = json!([{"persistentVolumeClaim": null, "ephemeral": {}}, {"persistentVolumeClaim": null, "ephemeral": null}]);
    let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true}]);
    let meta = json!({"namespace": "shop", "name": "a", "uid": "uid-a", "annotations": {"kubernetes.io/config.mirror": "h"},
        "labels": {DRAIN_LABEL: "skip"}, "ownerReferences": owners});
    let kept = json!({"metadata": meta, "spec": {"volumes": volumes}, "status": {"phase": "Running"}});
    assert_eq!(serde_json::to_value(pod).unwrap(), kept);
}

#[test]
fn the_time_of_a_drain_is_counted_by_our_own_clock() {
    let machine = |status: Value| -> WindowsMachine {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "win-1", "deletionTimestamp": at(-360).to_string()}, "spec": {"image": "w"}, "status": status}))
        .unwrap()
    };
    let since = |second| json!({"drainingSince": at(second).to_string()});
    for (status, expected) in [(json!({}), false), (since(-299), false), (since(-300), true)] {
        assert_eq!(is_over(&machine(status.clone()), &limits(300, 0), at(0)), expected, "{status}");
    }
}

/// The clock of the API server is six minutes behind ours.
#[test]
fn a_pod_has_its_time_whatever_the_clock_of_its_api_server_says() {
    let pods = [ending("a", -330, 30)];
    let node = node("True", true);
    let look = |endings: &HashMap<String, Timestamp>, second| {
        decide(&ObservedNode { node: &node, pods: Some(&pods), endings, since: at(0), limits: limits(0, 300), excluded: false }, at(second)).step
    };
    assert_eq!(look(&HashMap::new(), 0), DrainStep::Wait, "seen for the first time");
    let endings = [("uid-a".to_owned(), at(0))].into();
    assert_eq!(look(&endings, 329), DrainStep::Wait);
    assert!(matches!(look(&endings, 330), DrainStep::Force(_)));
}

fn names(pods: &[Victim]) -> Vec<&str> {
    pods.iter().map(|v| v.name.as_str()).collect()
}

#[test]
fn first_the_node_is_cordoned_then_looked_at_then_emptied() {
    let pods = [pod("b", json!({})), pod("a", json!({}))];
    assert_eq!(look(&node("True", false), Some(&pods), limits(0, 300), 1).step, DrainStep::Cordon);
    assert_eq!(look(&node("True", true), None, limits(0, 300), 1).step, DrainStep::List);
    let DrainStep::Evict { pods, grace: None } = look(&node("True", true), Some(&pods), limits(0, 300), 1).step else { panic!() };
    assert_eq!(names(&pods), ["a", "b"]);
    assert_eq!(look(&node("True", true), Some(&[]), limits(0, 300), 1).step, DrainStep::Done);
}

#[test]
fn who_is_waited_for() {
    let owner =
        |kind: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "x", "controller": true}]}});
    let label = |value: &str| json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": value}}});
    let hung = Some(Duration::from_secs(300));
    for (what, pod, expected) in [
        ("of a ReplicaSet", pod("x", json!({})), Stand::Runs),
        ("without a controller", pod("x", json!({"metadata": {"ownerReferences": []}})), Stand::Runs),
        ("with an empty directory", pod("x", json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}})), Stand::Runs),
        ("pending", pod("x", json!({"status": {"phase": "Pending"}})), Stand::Runs),
        ("of a DaemonSet", pod("x", owner("DaemonSet")), Stand::Stays),
        ("static", pod("x", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}})), Stand::Stays),
        ("completed", pod("x", json!({"status": {"phase": "Succeeded"}})), Stand::Stays),
        ("failed", pod("x", json!({"status": {"phase": "Failed"}})), Stand::Stays),
        ("skip", pod("x", label("skip")), Stand::Stays),
        ("Skip", pod("x", label("Skip")), Stand::Stays),
        ("wait-completed", pod("x", label("wait-completed")), Stand::Completes),
        ("WaitCompleted", pod("x", label("WaitCompleted")), Stand::Completes),
        ("another label value", pod("x", label("whatever")), Stand::Runs),
        ("told to end", ending("x", 120, 30), Stand::Ends),
        ("just over", ending("x", 97, 30), Stand::Ends),
        ("late", ending("x", 0, 30), Stand::Hangs { force_in: Some(Duration::from_secs(200)) }),
        ("much too late", ending("x", -200, 30), Stand::Hangs { force_in: Some(Duration::ZERO) }),
        ("kept by a finalizer", ending("x", -200, 0), Stand::Stays),
    ] {
        assert_eq!(stand(&pod, hung, false), expected, "{what}");
    }
    assert_eq!(stand(&ending("x", -9000, 30), None, false), Stand::Hangs { force_in: None }, "force is off");
    assert_eq!(stand(&ending("x", 99, 1), hung, true), Stand::Ends, "the kubelet may still be there");
    assert_eq!(stand(&ending("x", 98, 1), hung, true), Stand::Stays, "no kubelet is there to end it");
}

#[test]
fn on_an_unreachable_node_no_pod_has_long() {
    let pods = [pod("a", json!({}))];
    let DrainStep::Evict { grace, .. } = look(&node("Unknown", true), Some(&pods), limits(0, 300), 60).step else { panic!() };
    assert_eq!(grace, Some(1));
    assert_eq!(look(&node("Unknown", true), Some(&[ending("a", 0, 1)]), limits(0, 300), 60).step, DrainStep::Done);
    // A kubelet that reports a problem still works, and its pods end.
    assert_eq!(look(&node("False", true), Some(&[ending("a", 59, 1)]), limits(0, 300), 60).step, DrainStep::Wait);
}

#[test]
fn what_hangs_is_forced_and_only_then() {
    let pods = [ending("old", 0, 30), ending("young", 70, 30), pod("running", json!({}))];
    let plan = look(&node("True", true), Some(&pods), limits(0, 60), 50);
    let DrainStep::Evict { pods: evicted, .. } = &plan.step else { panic!("{plan:?}") };
    assert_eq!((names(evicted), names(&plan.left.hung), names(&plan.left.ending)), (vec!["running"], vec!["old"], vec!["young"]));
    assert_eq!(plan.requeue_after, Duration::from_secs(10), "when it is due");
    let DrainStep::Force(forced) = look(&node("True", true), Some(&pods), limits(0, 60), 60).step else { panic!() };
    assert_eq!(names(&forced), ["old"]);
}

#[test]
fn a_limit_ends_it_whatever_is_left_and_zero_never_does() {
    let pods = [pod("a", json!({}))];
    assert!(matches!(look(&node("True", true), Some(&pods), limits(600, 300), 599).step, DrainStep::Evict { .. }));
    for known in [None, Some(&pods[..])] {
        assert_eq!(look(&node("True", true), known, limits(600, 300), 600).step, DrainStep::GiveUp);
        assert_eq!(look(&node("True", false), known, limits(600, 300), 600).step, DrainStep::GiveUp);
    }
    assert!(matches!(look(&node("True", true), Some(&pods), limits(0, 300), 10_000_000).step, DrainStep::Evict { .. }));
    let node = node("True", false);
    let excluded = ObservedNode { node: &node, pods: None, endings: &HashMap::new(), since: at(0), limits: limits(0, 300), excluded: true };
    assert_eq!(decide(&excluded, at(1)).step, DrainStep::GiveUp);
    assert!(given_up(&excluded).contains("exclude-node-draining"));
    assert_eq!(Limits::of(&Drain::default()), limits(0, 300));
}

#[test]
fn volumes_are_waited_for_once_the_pods_are_gone() {
    let mut attached = node("True", true);
    let volumes = json!([{"name": "kubernetes.io/csi/disk^1", "devicePath": ""}]);
    attached.status.as_mut().unwrap().volumes_attached = serde_json::from_value(volumes).unwrap();
    let plan = look(&attached, Some(&[]), limits(0, 300), 1);
    assert_eq!((plan.step, plan.left.volumes), (DrainStep::Wait, vec!["kubernetes.io/csi/disk^1".to_owned()]));
    let keeper = pod(
        "keeper",
        json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "skip"}},
        "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}),
    );
    assert_eq!(look(&attached, Some(&[keeper]), limits(0, 300), 1).step, DrainStep::Done, "a pod that stays keeps its volumes");
    let mut lost = attached.clone();
    lost.status.as_mut().unwrap().conditions = node("Unknown", true).status.unwrap().conditions;
    assert_eq!(look(&lost, Some(&[]), limits(0, 300), 1).step, DrainStep::Done);
}

#[test]
fn looks_are_often_at_first_and_never_after_the_end() {
    let pods = [ending("a", 100_000, 30)];
    let after = |second, whole| look(&node("True", true), Some(&pods), limits(whole, 300), second).requeue_after.as_secs();
    assert_eq!([after(0, 0), after(40, 0), after(4000, 0), after(595, 600)], [2, 10, 20, 5]);
}

#[test]
fn the_words_name_what_blocks() {
    let unowned = json!({"metadata": {"ownerReferences": []}});
    let completing = json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "wait-completed"}}});
    let mut pods = vec![pod("blocked", json!({})), pod("lonely", unowned), ending("hung", 0, 30), pod("batch", completing)];
    pods.extend((0..5).map(|n| ending(&format!("end-{n}"), 100, 30)));
    let node = node("True", true);
    let endings = told(&pods);
    let situation = ObservedNode { node: &node, pods: Some(&pods), endings: &endings, since: at(0), limits: limits(600, 300), excluded: false };
    let left = decide(&situation, at(60)).left;
    let blocked = left.evicted[0].clone();
    let refused = [(
        blocked,
        "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently"
            .to_owned(),
    )];
    let [deleting, ready] = conditions(&situation, &left, &refused.into());
    insta::assert_snapshot!(deleting.message);
    assert_eq!((deleting.status, ready.status, deleting.reason), (Some(true), Some(false), Reason::DrainingNode));
    let later = decide(&situation, at(61)).left;
    assert_eq!(later, left, "a second later the words are the same");
    insta::assert_snapshot!(given_up(&situation));
}
