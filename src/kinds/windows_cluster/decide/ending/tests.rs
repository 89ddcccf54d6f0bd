use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::api::capi::Cluster;
use crate::api::cluster_ref::ClusterSource;
use crate::domain::decision::Decision;
use crate::kinds::machine::decide::step::Reach;
use crate::kinds::windows_cluster::decide::ending::*;
use crate::kinds::windows_cluster::decide::step::{ObservedWindowsCluster, WindowsClusterStep, decide};

const GONE: &str = "2026-01-01T00:00:00Z";

/// A WindowsCluster that has brought an object, unless `mode` is null.
fn object(mode: Value, ours: bool, deleted: bool) -> WindowsCluster {
    let finalizers: &[&str] = if ours { &[FINALIZER] } else { &[] };
    let status = if mode.is_null() { json!({}) } else { json!({"components": {"objects": ["RuntimeClass windows-2022"]}}) };
    let components = if mode.is_null() { Value::Null } else { json!({"mode": mode}) };
    serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "w1", "namespace": "lab", "finalizers": finalizers, "deletionTimestamp": deleted.then_some(GONE)},
        "spec": {"components": components}, "status": status}))
    .unwrap()
}

fn cluster(control_plane: Option<&str>, paused: bool, deleted: bool) -> TargetCluster {
    let reference = control_plane.map(|kind| json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": kind, "name": "c1"}));
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "c1", "namespace": "lab", "deletionTimestamp": deleted.then_some(GONE)},
        "spec": {"paused": paused, "controlPlaneRef": reference, "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}});
    TargetCluster::of_cluster(&serde_json::from_value::<Cluster>(cluster).unwrap(), None)
}

fn c1() -> ClusterRef {
    ClusterRef::cluster_api("lab", "c1")
}

/// A cluster that no Cluster represents.
fn standalone() -> TargetCluster {
    let source = ClusterSource::Kubeconfig { secret: "there".into(), key: "value".into() };
    TargetCluster::standalone(ClusterRef { namespace: "lab".into(), source }, None, None)
}

fn decided(object: &WindowsCluster, cluster: Option<&TargetCluster>, machines: usize) -> Decision<WindowsClusterStep> {
    decide(&ObservedWindowsCluster { object, cluster, machines, hypervisors: vec![], reach: &|_| Reach::Reachable })
}

/// The name of the step.
fn step(object: &WindowsCluster, cluster: Option<&TargetCluster>, machines: usize) -> String {
    let step = format!("{:?}", decided(object, cluster, machines).step);
    step.split('(').next().unwrap().to_owned()
}

const OURS: Option<&str> = Some("ExternalControlPlane");
const OTHER: Option<&str> = Some("KubeadmControlPlane");

#[test]
fn what_was_brought_goes_after_the_last_machine_of_a_cluster_that_goes() {
    let auto = object(json!("Auto"), true, false);
    for (control_plane, paused, deleted, machines, expected) in [
        (OURS, false, false, 0, "Reconcile"),
        (OURS, false, true, 1, "Reconcile"),
        (OURS, false, true, 0, "TakeAway"),
        // No provider created the control plane, so none removes it.
        (None, false, true, 0, "TakeAway"),
        // The workload cluster is deleted with the Cluster: nothing may delay the deletion.
        (OTHER, false, true, 0, "Release"),
        (OTHER, false, true, 1, "Reconcile"),
        // A move.
        (OURS, true, true, 0, "Wait"),
        (OURS, true, false, 0, "Wait"),
    ] {
        let cluster = cluster(control_plane, paused, deleted);
        assert_eq!(step(&auto, Some(&cluster), machines), expected, "{control_plane:?} paused: {paused}, deleted: {deleted}, {machines} machines");
    }
}

#[test]
fn what_was_brought_goes_with_its_windows_cluster_too() {
    let auto = object(json!("Auto"), true, true);
    for (cluster, machines, expected) in [
        (Some(cluster(OURS, false, false)), 1, "Reconcile"),
        (Some(cluster(OURS, false, false)), 0, "TakeAway"),
        // The workload cluster continues to run.
        (Some(cluster(OTHER, false, false)), 0, "TakeAway"),
        (Some(cluster(OTHER, false, true)), 0, "Release"),
        (Some(cluster(OURS, true, false)), 0, "Wait"),
        (None, 0, "TakeAway"),
        (None, 1, "Reconcile"),
        (Some(standalone()), 0, "TakeAway"),
        (Some(standalone()), 1, "Reconcile"),
    ] {
        assert_eq!(step(&auto, cluster.as_ref(), machines), expected, "{cluster:?}, {machines} machines");
    }
    let waiting = decided(&auto, Some(&cluster(OURS, false, false)), 2).conditions;
    let deleting = waiting.iter().find(|condition| condition.type_ == ConditionType::Deleting).unwrap();
    assert!(deleting.message.starts_with("2 Windows machines"), "{deleting:?}");
    for (cluster, remedy) in [(cluster(OURS, false, false), "delete them, or the Cluster"), (standalone(), "delete their pools")] {
        let waiting = decided(&auto, Some(&cluster), 2).conditions;
        assert!(waiting.iter().any(|condition| condition.message.ends_with(remedy)), "{waiting:?}");
    }
    assert_eq!(step(&object(json!("Auto"), true, false), Some(&standalone()), 0), "Reconcile", "it stays without machines");
    // The state in which a move deletes the object: without the finalizer.
    assert_eq!(step(&object(json!("Auto"), false, true), None, 0), "Ignore");
    assert_eq!(step(&object(json!("Auto"), false, false), None, 0), "Ignore", "it may be paused");
}

#[test]
fn the_finalizer_is_there_as_long_as_something_may_be_in_the_workload_cluster() {
    let (lives, goes) = (cluster(OURS, false, false), cluster(OURS, false, true));
    for (mode, ours, cluster, machines, expected) in [
        (json!(null), false, &lives, 1, "Reconcile"),
        (json!(null), true, &lives, 1, "Release"),
        (json!("Auto"), false, &lives, 1, "Adopt"),
        (json!("Off"), false, &lives, 1, "Adopt"),
        (json!("Off"), true, &lives, 1, "Reconcile"),
        (json!("Auto"), false, &goes, 1, "Adopt"),
        (json!("Auto"), false, &goes, 0, "Ignore"),
        (json!(null), true, &goes, 0, "Release"),
        (json!("Off"), true, &goes, 0, "TakeAway"),
        // Nothing is written in this case.
        (json!("Report"), true, &goes, 0, "LeaveBehind"),
    ] {
        assert_eq!(step(&object(mode.clone(), ours, false), Some(cluster), machines), expected, "{mode} {ours} {machines}");
    }
    let mut told = object(json!("Auto"), true, false);
    told.status.as_mut().unwrap().conditions = condition::apply(&[], &[left_behind(&told, &c1(), None, "cut")], None, Timestamp::UNIX_EPOCH);
    assert_eq!(step(&told, Some(&goes), 0), "Release", "it was said");
}

#[test]
fn a_control_plane_is_held_by_what_still_has_to_go() {
    let (lives, goes) = (cluster(OURS, false, false), cluster(OURS, false, true));
    for (ours, deleted, cluster, expected) in [
        (true, false, Some(&goes), true),
        (true, true, Some(&lives), true),
        (true, false, None, true),
        // A control plane that is deleted alone.
        (true, false, Some(&lives), false),
        (false, false, Some(&goes), false),
        (false, true, Some(&lives), false),
    ] {
        assert_eq!(needs_kubeconfig(&object(json!("Auto"), ours, deleted), cluster), expected, "{ours} {deleted} {cluster:?}");
    }
}

#[test]
fn a_workload_cluster_that_cannot_be_used_holds_nothing_for_long() {
    let goes = cluster(OURS, false, true);
    let start: Timestamp = GONE.parse().unwrap();
    let after = |seconds: i64| start + SignedDuration::from_secs(seconds);
    let new = object(json!("Auto"), true, false);
    let Unremoved::TryAgain { since, condition, .. } = unremoved(&new, Some(&goes), Some(Fault::Unreachable), "cut", start) else { panic!() };
    assert_eq!((since, condition.reason, condition.status), (start, Reason::WorkloadClusterUnreachable, Some(false)));

    let mut tried = new.clone();
    tried.status.as_mut().unwrap().components.as_mut().unwrap().removing_since = Some(serde_json::from_value(json!(GONE)).unwrap());
    let (lost, all) = (Some(Fault::KubeconfigMissing), [None, Some(Fault::Unreachable), Some(Fault::Unauthorized), Some(Fault::Forbidden)]);
    for fault in all {
        for (seconds, stays) in [(0, false), (119, false), (120, true), (100_000, true)] {
            let found = unremoved(&tried, Some(&goes), fault, "cut", after(seconds));
            assert_eq!(matches!(found, Unremoved::LeaveBehind(_)), stays, "{fault:?} after {seconds} s: {found:?}");
        }
    }
    for (cluster, stays) in [(Some(&goes), true), (None, true), (Some(&cluster(OURS, false, false)), false), (Some(&standalone()), false)] {
        let found = unremoved(&new, cluster, lost, "no Secret", start);
        assert_eq!(matches!(found, Unremoved::LeaveBehind(_)), stays, "{cluster:?}: {found:?}");
    }
}

#[test]
fn what_stays_is_told_with_the_command_that_removes_it() {
    let mut object = object(json!("Auto"), true, false);
    let network = "namespace/capw-windows clusterrolebinding/capw-kube-proxy clusterrolebinding/capw-flannel clusterrole/capw-flannel";
    let class = "runtimeclass/windows-2022";
    let goes = cluster(OURS, false, true);
    for (parts, objects, names) in [
        (json!([]), json!(["RuntimeClass windows-2022"]), class.to_owned()),
        (json!([{"name": "flannel", "ready": 0, "desired": 0}]), json!(["RuntimeClass windows-2022"]), format!("{network} {class}")),
        (json!([]), json!([]), network.to_owned()),
    ] {
        object.status.as_mut().unwrap().components = Some(serde_json::from_value(json!({"parts": parts, "objects": objects})).unwrap());
        let said = left_behind(&object, &c1(), Some(&goes), "it does not answer");
        assert_eq!(
            said.message,
            format!(
                "what CAPW brought stays in the workload cluster of Cluster c1 (https://10.0.0.1:6443); `kubectl delete --ignore-not-found {names}` removes it there. It was not removed: it does not answer"
            )
        );
    }
}
