//! Tests of changes of the Linux side, one write after the other, until no change is left.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{KNOWN, changed, object, recording};
use crate::api::condition::Reason::{self, *};
use crate::components::change::{CHANGED, SETTINGS};
use crate::components::{ObjectRef, Step, Write, is_warning, judge, next_step, read};

const CONFIG: &str = "ConfigMap kube-flannel-cfg";
const SET: &str = "DaemonSet kube-flannel-ds";
const INSTALLATION: &str = "Installation default";
const ENDPOINT: &str = "ConfigMap kubernetes-services-endpoint";
/// More writes than any cluster needs.
const MANY: usize = 10;

fn next(objects: &[Value]) -> Step {
    let side = read(objects);
    next_step(objects, &side, &judge(&side))
}

/// Applies a write as the API server does.
fn take(objects: &mut Vec<Value>, write: &Write) {
    let there = objects.iter_mut().find(|there| ObjectRef::of(there) == write.object);
    assert_eq!(there.is_none(), write.is_new, "{write:?}");
    let Some(there) = there else {
        assert_eq!((ObjectRef::of(&write.patch), &write.patch["kind"]), (write.object.clone(), &json!(write.kind.kind)));
        objects.push(write.patch.clone());
        return;
    };
    for precondition in ["uid", "resourceVersion"] {
        assert_eq!(write.patch["metadata"][precondition], there["metadata"][precondition], "{write:?}");
    }
    assert_eq!(there["kind"], write.kind.kind);
    json_patch::merge(there, &write.patch);
}

/// Returns the objects that are written, in order, and the step after the last write.
fn writes(objects: &mut Vec<Value>) -> (Vec<String>, Step) {
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

/// Simulates the DaemonSet controller after it recreated all pods, on nodes whose flanneld uses the configured settings.
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
            "calico-strict-affinity-off" => &["IPAMConfiguration default", INSTALLATION],
            "calico-operator-installed" => &["IPAMConfiguration default", INSTALLATION, ENDPOINT, INSTALLATION],
            "calico-operator-vxlan" | "calico-operator-bgp-none" => &[INSTALLATION],
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

/// `linuxSide: Change` does exactly what `linuxSide: Report` reports: it applies the patches of findings, and then restarts pods.
#[test]
fn what_is_written_is_what_the_findings_say() {
    for known in &KNOWN {
        let mut objects = recording(known.name);
        let (mut told, mut written, mut remedies) = (BTreeSet::new(), BTreeSet::new(), String::new());
        let last = loop {
            let found = judge(&read(&objects));
            let with_patch = || found.iter().filter(|finding| finding.patch.is_some() && !is_warning(finding.reason));
            told.extend(with_patch().map(|finding| finding.object.clone()));
            remedies.extend(found.iter().map(|finding| finding.remedy.as_str()));
            let write = match next(&objects) {
                Step::Write(write) => write,
                step => break step,
            };
            let mut said = json!({});
            for finding in with_patch().filter(|finding| finding.object == write.object) {
                json_patch::merge(&mut said, finding.patch.as_ref().unwrap().value());
            }
            if said == json!({}) {
                let restart = format!("`kubectl rollout restart {}`", write.object.for_kubectl());
                assert!(remedies.contains(&restart), "{}: {write:?} {remedies}", known.name);
            } else {
                // The patch adds only preconditions and CAPW's annotation.
                json_patch::merge(&mut said, &json!({"metadata": {"annotations": {CHANGED: write.patch["metadata"]["annotations"][CHANGED]}}}));
                let mut is = write.patch.clone();
                for precondition in ["uid", "resourceVersion"] {
                    is["metadata"].as_object_mut().unwrap().remove(precondition);
                }
                assert_eq!(is, said, "{}", known.name);
                written.insert(write.object.clone());
            }
            take(&mut objects, &write);
        };
        let is_right = if matches!(last, Step::Leave(..)) { written.is_subset(&told) } else { written == told };
        assert!(is_right, "{}: {told:?} {written:?} {last:?}", known.name);
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
    // New settings by a person restart the pods again.
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
    assert!(why.contains("and another writer has changed it back"), "{why}");
    let entry = |manager: &str, time: &str| json!({"manager": manager, "operation": "Update", "time": time});
    let writers = json!([entry("capw-linux-side", "2026-01-01T00:00:00Z"), entry("kubectl-edit", "2026-01-02T00:00:00Z")]);
    json_patch::merge(object(&mut objects, CONFIG).unwrap(), &json!({"metadata": {"managedFields": writers}}));
    let Step::Leave(ManagedElsewhere, why) = next(&objects) else { panic!("{:?}", next(&objects)) };
    assert!(why.contains("and the field manager kubectl-edit has changed it back"), "{why}");
    // Another problem of the same object may still be corrected.
    let mut objects = changed("calico-operator-windows", "FelixConfiguration default", &json!({"spec": {"vxlanVNI": 1}}));
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
    let degraded = json!({"apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus", "metadata": {"name": "calico"},
        "status": {"conditions": [{"type": "Degraded", "status": "True", "reason": "ResourceReadError", "message": "no Typha"}]}});
    let cases: [(&str, &str, Value, Option<Reason>, &str); 10] = [
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
        ("calico-operator-vxlan", "TigeraStatus calico", degraded, Some(ChangeNeeded), "fix first what TigeraStatus calico says"),
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

#[test]
fn calico_is_told_of_windows_nodes_step_by_step_and_switched_on_last() {
    let mut objects = recording("calico-operator-installed");
    let (written, last) = writes(&mut objects);
    assert_eq!((written.last().map(String::as_str), last), (Some(INSTALLATION), Step::Nothing));
    let installation = object(&mut objects, INSTALLATION).unwrap().clone();
    assert_eq!(installation["metadata"]["annotations"][CHANGED], "ServiceNetworkNotConfigured,WindowsDataplaneOff");
    let spec = &installation["spec"];
    assert_eq!((&spec["serviceCIDRs"], &spec["calicoNetwork"]["windowsDataplane"]), (&json!(["10.96.0.0/12"]), &json!("HNS")));
    assert_eq!(spec["windowsNodes"], json!({"cniBinDir": "/opt/cni/bin", "cniConfigDir": "/etc/cni/net.d"}));
    let endpoint = object(&mut objects, ENDPOINT).unwrap().clone();
    assert_eq!(
        (&endpoint["metadata"]["namespace"], &endpoint["metadata"]["annotations"][CHANGED]),
        (&json!("tigera-operator"), &json!("ApiServerNotConfigured"))
    );
    assert_eq!(endpoint["data"], json!({"KUBERNETES_SERVICE_HOST": "10.0.0.10", "KUBERNETES_SERVICE_PORT": "6443"}));

    // A deleted object is recreated, but a setting that was switched off again is left alone.
    objects.retain(|object| ObjectRef::of(object) != ObjectRef::of(&endpoint));
    assert_eq!(writes(&mut objects), (vec![ENDPOINT.to_owned()], Step::Nothing));
    json_patch::merge(object(&mut objects, INSTALLATION).unwrap(), &json!({"spec": {"calicoNetwork": {"windowsDataplane": "Disabled"}}}));
    let Step::Leave(ManagedElsewhere, why) = next(&objects) else { panic!("{:?}", next(&objects)) };
    assert!(why.contains("WindowsDataplaneOff again"), "{why}");
}

/// The setting affects all Windows nodes, and Windows nodes of a cloud may need another value.
#[test]
fn windows_nodes_that_capw_did_not_make_are_left_to_people() {
    let of_aks = json!({"spec": {"windowsNodes": {"cniBinDir": "/k/azurecni/bin", "cniConfigDir": "/k/azurecni/netconf"}}});
    let off = json!({"spec": {"windowsNodes": null, "calicoNetwork": {"windowsDataplane": "Disabled"}}});
    let node = |name: &str, provider_id: Option<&str>| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": provider_id},
            "status": {"nodeInfo": {"operatingSystem": "windows"}}})
    };
    let ours = node("win-1", Some("windows://lab/715b420a-bce5-5085-b8d5-5b239dc139ce"));
    let of_azure = || Some(node("akswin000000", Some("azure:///subscriptions/1/virtualMachines/0")));
    for (installation, foreign, changed_by_capw, field) in [
        (&of_aks, None, true, ""),
        (&of_aks, of_azure(), false, "spec.windowsNodes.cniBinDir"),
        (&of_aks, Some(node("by-hand", None)), false, "spec.windowsNodes.cniBinDir"),
        (&off, None, true, ""),
        (&off, of_azure(), false, "spec.calicoNetwork.windowsDataplane"),
    ] {
        let mut objects = changed("calico-operator-windows", INSTALLATION, installation);
        let before = object(&mut objects, INSTALLATION).unwrap()["spec"].clone();
        objects.extend([ours.clone()].into_iter().chain(foreign));
        let (written, last) = writes(&mut objects);
        let spec = object(&mut objects, INSTALLATION).unwrap()["spec"].clone();
        if changed_by_capw {
            assert_eq!((written, last), (vec![INSTALLATION.to_owned()], Step::Nothing));
            let folders = &spec["windowsNodes"];
            assert_eq!((&folders["cniBinDir"], &folders["cniConfigDir"]), (&json!("/opt/cni/bin"), &json!("/etc/cni/net.d")));
            continue;
        }
        let Step::Leave(ChangeNeeded, why) = last else { panic!("{last:?}") };
        assert_eq!((written, spec), (Vec::<String>::new(), before));
        for part in [field, "CAPW did not make Node ", "`kubectl patch installation/default --type merge -p '{\"spec\":"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}

/// CAPW never turns the switch off. A user for whom Linux nodes matter more has the command.
#[test]
fn the_switch_is_not_taken_back_when_the_operator_degrades() {
    let degraded =
        json!({"status": {"conditions": [{"type": "Degraded", "status": "True", "reason": "InvalidConfigurationError", "message": "no"}]}});
    let off = "`kubectl patch installation/default --type merge -p '{\"spec\":{\"calicoNetwork\":{\"windowsDataplane\":\"Disabled\"},\"windowsNodes\":null}}'`";
    for (status, switch, has_command) in
        [("TigeraStatus calico", "HNS", true), ("TigeraStatus calico-windows", "HNS", false), ("TigeraStatus calico", "Disabled", false)]
    {
        let mut objects = changed("calico-operator-windows", status, &degraded);
        let switched = json!({"spec": {"calicoNetwork": {"windowsDataplane": switch}}});
        json_patch::merge(object(&mut objects, INSTALLATION).unwrap(), &switched);
        let found = judge(&read(&objects));
        let said = found.iter().find(|finding| finding.reason == OperatorDegraded).unwrap();
        assert_eq!((said.patch.as_ref(), said.remedy.contains(off)), (None, has_command), "{status} {switch}: {}", said.remedy);
        let (written, _) = writes(&mut objects);
        assert!(written.is_empty(), "{status} {switch}: {written:?}");
    }
    // The command restores the state before the switch.
    let mut objects = changed("calico-operator-windows", "TigeraStatus calico", &json!({}));
    json_patch::merge(
        object(&mut objects, INSTALLATION).unwrap(),
        &json!({"spec": {"calicoNetwork": {"windowsDataplane": "Disabled"}, "windowsNodes": null}}),
    );
    assert_eq!(judge(&read(&objects)).iter().map(|finding| finding.reason).collect::<Vec<_>>(), [WindowsDataplaneOff]);
}

/// The operator's chart has a value for the ConfigMap.
#[test]
fn what_belongs_to_an_object_of_a_tool_is_not_made() {
    let of_chart = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "calico"}}, "spec": {"serviceCIDRs": ["10.96.0.0/12"]}});
    let mut objects = changed("calico-operator-installed", INSTALLATION, &of_chart);
    let (written, last) = writes(&mut objects);
    let Step::Leave(ManagedElsewhere, why) = last else { panic!("{last:?}") };
    assert_eq!(written, ["IPAMConfiguration default"]);
    assert!(why.contains("ConfigMap tigera-operator/kubernetes-services-endpoint is not there") && why.contains("Helm release calico"), "{why}");
}

/// A proxy on each Linux node is not available on Windows nodes.
#[test]
fn an_address_that_is_of_use_on_linux_nodes_only_is_not_told() {
    for (server, made) in [
        ("https://api.lab.example.com:6443", Some(("api.lab.example.com", "6443"))),
        ("https://[fd00::1]:8443/", Some(("fd00::1", "8443"))),
        ("https://api.lab.example.com", Some(("api.lab.example.com", "443"))),
        ("https://127.0.0.1:6443", None),
        ("https://localhost:6443", None),
        ("https://rancher.example.com/k8s/clusters/c-1", None),
        ("", None),
    ] {
        let kubeconfig = json!({"data": {"kubeconfig.conf": json!({"clusters": [{"cluster": {"server": server}}]}).to_string()}});
        let mut objects = changed("calico-operator-installed", "ConfigMap kube-proxy", &kubeconfig);
        let (written, last) = writes(&mut objects);
        let data = object(&mut objects, ENDPOINT).map(|endpoint| endpoint["data"].clone());
        let expected = made.map(|(host, port)| json!({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}));
        assert_eq!(data, expected, "{server}");
        if made.is_none() {
            let Step::Leave(ChangeNeeded, why) = last else { panic!("{server}: {last:?}") };
            assert!(written.is_empty() && why.contains("give the ConfigMap the keys KUBERNETES_SERVICE_HOST"), "{server}: {why}");
        }
    }
}
