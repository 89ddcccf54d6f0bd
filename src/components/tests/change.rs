//! Changes of the Linux side, one write after the other, until nothing is left to do.

use serde_json::{Value, json};

use super::{KNOWN, changed, object, recording};
use crate::api::condition::Reason::{self, *};
use crate::components::change::{CHANGED, SETTINGS};
use crate::components::{ObjectRef, Step, Write, judge, next_step, read};

const CONFIG: &str = "ConfigMap kube-flannel-cfg";
const SET: &str = "DaemonSet kube-flannel-ds";
/// More writes than any cluster needs.
const MANY: usize = 10;

fn next(objects: &[Value]) -> Step {
    let side = read(objects);
    next_step(objects, &side, &judge(&side))
}

/// As the API server takes it.
fn take(objects: &mut [Value], write: &Write) {
    let there = objects.iter_mut().find(|there| ObjectRef::of(there) == write.object).unwrap();
    for precondition in ["uid", "resourceVersion"] {
        assert_eq!(write.patch["metadata"][precondition], there["metadata"][precondition], "{write:?}");
    }
    assert_eq!(there["kind"], write.kind.kind);
    json_patch::merge(there, &write.patch);
}

/// The objects that are written, in this order, and the step after the last write.
fn writes(objects: &mut [Value]) -> (Vec<String>, Step) {
    let mut written = Vec::new();
    for _ in 0..MANY {
        match next(objects) {
            Step::Write(write) => {
                take(objects, &write);
                written.push(format!("{} {}", write.object.kind, write.object.name));
            }
            step => return (written, step),
        }
    }
    panic!("after {MANY} writes there are more: {written:?}");
}

/// Like a controller of DaemonSets that has made the pods anew, on nodes whose flanneld has started with what is written.
fn restarted(objects: &mut [Value]) {
    let counts = json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}});
    json_patch::merge(object(objects, SET).unwrap(), &counts);
    for node in ["Node linux-1", "Node linux-2"] {
        let shown =
            json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-data": "{\"VNI\":4096,\"VtepMAC\":\"46:7f:5c:1c:0b:01\"}"}}});
        json_patch::merge(object(objects, node).unwrap(), &shown);
    }
}

#[test]
fn each_recording_is_changed_by_a_few_writes_or_left_to_people() {
    for known in &KNOWN {
        let expected: &[&str] = match known.name {
            "flannel-manifest" | "flannel-gbp" | "flannel-direct-routing" => &[CONFIG, SET],
            "flannel-changed-not-rolled" => &[SET],
            "calico-strict-affinity-off" => &["IPAMConfiguration default"],
            "aws-vpc-cni" => &["ConfigMap amazon-vpc-cni"],
            _ => &[],
        };
        let mut objects = recording(known.name);
        let (written, last) = writes(&mut objects);
        assert_eq!(written, expected, "{}: {last:?}", known.name);
        let right = match (known.name, &last) {
            ("flannel-chart", Step::Leave(ManagedElsewhere, why)) => why.contains("Helm release flannel"),
            (_, Step::Nothing) => known.reasons.is_empty() || !expected.is_empty(),
            (_, Step::Wait(why)) => expected.contains(&SET) && why.contains("VNI 1"),
            (_, Step::Leave(ChangeNeeded, why)) => expected.is_empty() && why.contains("CAPW does not change this"),
            _ => false,
        };
        assert!(right, "{}: {last:?}", known.name);
    }
}

#[test]
fn a_changed_network_is_restarted_once_and_then_left_alone() {
    let mut objects = recording("flannel-manifest");
    let (written, _) = writes(&mut objects);
    assert_eq!(written, [CONFIG, SET]);
    assert_eq!(object(&mut objects, CONFIG).unwrap()["metadata"]["annotations"][CHANGED], "VniBelow4096,PortNot4789");
    for (status, said) in [
        (json!({"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 1}), "1 of 2 pods have restarted, 1 are available"),
        (json!({"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}), "2 of 2 pods have restarted, 1 are available"),
        (
            json!({"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}),
            "all pods of DaemonSet kube-flannel/kube-flannel-ds have restarted",
        ),
    ] {
        json_patch::merge(object(&mut objects, SET).unwrap(), &json!({"status": status}));
        let Step::Wait(text) = next(&objects) else { panic!("{:?}", next(&objects)) };
        assert!(text.contains(said), "{text}");
    }
    restarted(&mut objects);
    assert_eq!(next(&objects), Step::Nothing);
    // New settings of a person restart the pods again.
    let other =
        json!({"data": {"net-conf.json": r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789, "MTU": 1400}}"#}});
    json_patch::merge(object(&mut objects, CONFIG).unwrap(), &other);
    assert_eq!(writes(&mut objects), (vec![SET.to_owned()], Step::Nothing));
}

#[test]
fn what_was_changed_back_is_left_alone() {
    let mut objects = recording("flannel-manifest");
    let before = object(&mut objects, CONFIG).unwrap()["data"].clone();
    writes(&mut objects);
    restarted(&mut objects);
    json_patch::merge(object(&mut objects, CONFIG).unwrap(), &json!({"data": before}));
    let (written, last) = writes(&mut objects);
    let Step::Leave(ManagedElsewhere, why) = last else { panic!("{last:?}") };
    assert!(written.is_empty() && why.contains("VniBelow4096 again") && why.contains(CHANGED), "{written:?} {why}");
    // Something else on the same object may still be changed.
    let mut objects = changed("calico-operator-vxlan", "FelixConfiguration default", &json!({"spec": {"vxlanVNI": 1}}));
    assert_eq!(writes(&mut objects), (vec!["FelixConfiguration default".to_owned()], Step::Nothing));
    json_patch::merge(object(&mut objects, "FelixConfiguration default").unwrap(), &json!({"spec": {"vxlanPort": 8472}}));
    assert_eq!(writes(&mut objects), (vec!["FelixConfiguration default".to_owned()], Step::Nothing));
    assert_eq!(object(&mut objects, "FelixConfiguration default").unwrap()["metadata"]["annotations"][CHANGED], "VniBelow4096,PortNot4789");
}

#[test]
fn what_is_not_changed_is_said_with_what_to_do() {
    let settled = json!({"spec": {"template": {"metadata": {"annotations": {SETTINGS: "of before"}}}}});
    let rolling = json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2}});
    let unseen = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
    let by_hand = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 0}});
    let cases: [(&str, &str, Value, Option<Reason>, &str); 9] = [
        (
            "flannel-manifest",
            "Node linux-2",
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.244.9.9"}]}}),
            Some(ChangeNeeded),
            "Node linux-2",
        ),
        (
            "flannel-manifest",
            CONFIG,
            json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "net"}}}),
            Some(ManagedElsewhere),
            "Flux's Kustomization net",
        ),
        ("calico-operator-bgp-with-vxlan", "Installation default", json!({}), Some(ChangeNeeded), "BGP peers outside"),
        ("calico-strict-affinity-off", "IPAMConfiguration default", Value::Null, Some(ChangeNeeded), "CAPW makes none"),
        ("k3s", "Node linux-1", json!({}), Some(ChangeNeeded), "--flannel-conf"),
        ("flannel-changed-not-rolled", SET, rolling, None, "1 of 2 pods"),
        ("flannel-changed-not-rolled", SET, unseen, None, "0 of 0 pods"),
        ("flannel-changed-not-rolled", SET, by_hand, None, "delete its pods"),
        ("flannel-vxlan-4096", SET, settled, None, ""),
    ];
    for (name, named, change, reason, said) in cases {
        let step = next(&changed(name, named, &change));
        let right = match (&step, reason) {
            (Step::Leave(found, why), Some(reason)) => *found == reason && why.contains(said),
            (Step::Wait(why), None) => why.contains(said),
            (Step::Nothing, None) => said.is_empty(),
            _ => false,
        };
        assert!(right, "{name} {named} {change}: {step:?}");
    }
}
