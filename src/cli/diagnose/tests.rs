use std::fs;

use clap::Parser;
use serde_json::json;

use crate::api::condition::Reason;
use crate::bootstrap;
use crate::cli::diagnose::answer::Answer;
use crate::cli::diagnose::*;
use crate::diagnosis::{Source, Symptom, objects};
use crate::vm::FailureCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    diagnose: Diagnose,
}

/// The output for files in a directory.
fn logs(files: &[(&str, &[u8])], arguments: &[&str]) -> Result<Answer, String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    let paths = arguments.iter().map(|argument| match argument.split_once('=') {
        Some((kind, name)) => format!("{kind}={}", directory.path().join(name).display()),
        None => directory.path().join(argument).display().to_string(),
    });
    let arguments = ["capw", "logs"].map(str::to_owned).into_iter().chain(paths);
    match Cli::try_parse_from(arguments).unwrap().diagnose.what {
        What::Logs(files) => files.look(),
        What::Machine(_) => unreachable!(),
    }
}

const TOKEN: &str = "discovery: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\" (abcdef.0123456789abcdef)";

#[test]
fn a_known_line_is_told_with_its_place_cause_and_remedy_and_without_secrets() {
    let text = format!("fine\n{TOKEN}\n{TOKEN}\n");
    let answer = logs(&[("kubeadm.log", text.as_bytes())], &["kubeadm.log"]).unwrap();
    assert_eq!(answer.findings.iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["F45"]);
    let shown = show::text(&answer);
    for part in [
        "1. F45 The bootstrap token",
        "(certain)",
        "seen    kubeadm.log:2: discovery:",
        "cause   The token",
        "remedy  Look at JoinCredentialValid",
        "see     https://",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let json = serde_json::to_string(&answer).unwrap();
    for text in [shown, json] {
        assert!(!text.contains("0123456789abcdef"), "{text}");
    }
}

#[test]
fn a_text_with_several_files_is_read_as_those_files() {
    let text = format!("==> C:\\var\\log\\kubelet\\kubelet.log <==\r\nfine\r\n\r\n==> kubeadm.log <==\r\n{TOKEN}\r\n==> System.csv <==\r\nfine\r\n");
    let answer = logs(&[("collected.log", text.as_bytes())], &["collected.log"]).unwrap();
    assert_eq!(answer.findings.iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["F45"]);
    assert!(show::text(&answer).contains("seen    collected.log: kubeadm.log:5: discovery:"), "{}", show::text(&answer));
    // A line of one file does not count as a line of the other.
    let elsewhere = text.replace("kubeadm.log", "System.csv");
    assert_eq!(logs(&[("collected.log", elsewhere.as_bytes())], &["collected.log"]).unwrap().findings, []);
}

/// Output of collect.ps1 itself, under PowerShell for Windows.
#[test]
fn what_is_collected_on_a_machine_is_read_as_it_is() {
    let answer = logs(&[("collected.log", include_bytes!("collected.log").as_slice())], &["collected.log"]).unwrap();
    let shown = show::text(&answer);
    assert!(answer.findings.iter().any(|found| found.id == "F41"), "{shown}");
    assert!(shown.contains("seen    collected.log: kubelet.log:"), "{shown}");
}

#[test]
fn the_kind_of_a_file_can_be_said_and_utf_16_is_read() {
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(TOKEN.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let files = [("join.txt", TOKEN.as_bytes()), ("wide.txt", utf16.as_slice())];
    for arguments in [["join.txt"], ["wide.txt"], ["kubeadm=join.txt"]] {
        assert_eq!(logs(&files, &arguments).unwrap().findings.len(), 1, "{arguments:?}");
    }
    assert_eq!(logs(&files, &["windows=join.txt"]).unwrap().findings, []);
    let error = logs(&files, &["linux=join.txt"]).unwrap_err();
    assert!(error.contains("\"linux\" is no kind of log") && error.contains("kubelet"), "{error}");
    assert!(logs(&files, &["none.log"]).unwrap_err().contains("none.log"));
}

#[test]
fn nothing_found_says_so() {
    let answer = logs(&[("kubelet.log", b"I0101 all is well\n")], &["kubelet.log"]).unwrap();
    assert!(show::text(&answer).contains("Nothing known to be wrong was found."));
}

#[test]
fn a_problem_is_told_with_its_meaning_and_remedy_in_plain_text() {
    for reason in Reason::ALL.iter().copied().filter(|reason| reason.is_problem()) {
        let symptom = Symptom::new(Source::Machine, "x", &format!("WindowsMachine Ready=False {reason}: it is so"));
        let finding = reasons::finding(&symptom, reason);
        assert_eq!(finding.cause, "it is so");
        assert!(!finding.title.contains('`') && !finding.title.ends_with('.') && !finding.remedy.contains('`'), "{finding:?}");
    }
}

#[test]
fn every_item_of_a_plan_has_a_remedy() {
    let plan = bootstrap::sample_plan();
    assert!(plan.items.len() > 20);
    for item in &plan.items {
        let found = diagnosis::diagnose(&[Symptom::step(&item.id, "failed", Some(item.code.number()), "it is not so")]);
        assert_eq!((found.len(), found[0].id.as_str()), (1, format!("code {}", item.code.number()).as_str()), "{}", item.id);
        // The plan contains the remedy for exactly this item.
        assert!(!item.why.remedy.is_empty(), "{}: no remedy", item.id);
    }
}

#[test]
fn what_a_node_says_becomes_facts_that_the_rules_know() {
    let now = "2026-11-21T12:00:00Z".parse().unwrap();
    let machine = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "metadata": {"name": "win-1", "namespace": "lab"},
        "spec": {"image": "x"},
        "status": {
            "hostName": "win-1", "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}], "poweredOnAt": "2026-11-21T11:00:00Z",
            "bootstrap": {"item": "settle", "state": "reboot", "code": 0, "boot": 9, "time": "2026-11-21T11:30:00Z"},
            "conditions": [{"type": "NodeJoined", "status": "False", "reason": "NodeNeverJoined", "message": "", "lastTransitionTime": "2026-11-21T11:45:00Z"}],
        },
    }))
    .unwrap();
    let node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "WIN-2", "creationTimestamp": "2026-11-21T11:00:00Z"},
        "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "172.28.0.1"}],
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"},
                {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure", "message": "kubelet has disk pressure"},
                {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory", "message": ""},
            ],
            "nodeInfo": {"kernelVersion": "10.0.20348.2582", "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "", "machineID": "", "operatingSystem": "windows", "osImage": "", "systemUUID": ""},
        },
    }))
    .unwrap();
    let request = serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr-1", "creationTimestamp": "2026-11-21T11:00:00Z"},
        "spec": {"request": "", "signerName": "kubernetes.io/kubelet-serving", "username": "system:node:win-1"}, "status": {},
    }))
    .unwrap();
    let pod = |selector: serde_json::Value| {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "dns", "namespace": "kube-system", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "dns", "uid": "u"}]},
            "spec": {"containers": [], "nodeSelector": selector},
            "status": {"containerStatuses": [{"name": "x", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
        }))
        .unwrap()
    };
    let mut symptoms = diagnosis::of_machine(&machine, now);
    symptoms.extend(objects::of_node(&node, &machine, now));
    symptoms.extend(objects::of_twins(&[node.clone(), node]));
    symptoms.extend(objects::of_request(&request, now));
    symptoms.extend(objects::of_pod(&pod(json!({}))));
    symptoms.extend(objects::of_pod(&pod(json!({"kubernetes.io/os": "windows"}))));
    let mut found: Vec<String> = diagnosis::diagnose(&symptoms).into_iter().map(|finding| finding.id).collect();
    found.sort();
    assert_eq!(found, ["F02", "F03", "F07", "F09", "F26", "F46", "F47", "F48", "F50", "F53", "F60", "F65", "F73"], "{symptoms:#?}");
}

/// A stage that passes is a problem only if the node has waited in it.
#[test]
fn a_node_whose_taint_stays_is_told_what_its_network_waits_for() {
    let node = |taint: &str| -> Vec<Symptom> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "creationTimestamp": "2026-11-21T11:00:00Z"},
            "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}});
        let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "metadata": {"name": "win-1"}, "spec": {"image": "x"}});
        let (node, machine) = (serde_json::from_value(node).unwrap(), serde_json::from_value(machine).unwrap());
        objects::of_node(&node, &machine, "2026-11-21T12:00:00Z".parse().unwrap())
    };
    let unverified = "startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified";
    for (taint, type_, reason, is_told) in [
        (unverified, "ComponentsReady", "NodeNotVerified", true),
        (unverified, "ComponentsReady", "PartNotReady", true),
        (unverified, "ComponentsReady", "ImageUnknown", true),
        (unverified, "LinuxSideReady", "ChangingLinuxSide", false),
        (unverified, "NetworkCompatible", "VniBelow4096", true),
        ("os", "NetworkCompatible", "VniBelow4096", true),
        ("os", "ComponentsReady", "NodeNotVerified", false),
        ("os", "ComponentsReady", "ImageUnknown", true),
    ] {
        let condition =
            json!({"type": type_, "status": "False", "reason": reason, "message": "win-1: it is so", "lastTransitionTime": "2026-11-21T11:45:00Z"});
        let (meta, symptoms) = (serde_json::from_value(json!({"name": "c1", "namespace": "lab"})).unwrap(), node(taint));
        let conditions = [serde_json::from_value(condition).unwrap()];
        let told = objects::of_windows_cluster(&meta, &conditions, objects::is_unverified(&symptoms));
        assert_eq!(told.len(), usize::from(is_told), "{taint} {reason}");
        for (symptom, reason) in told {
            let finding = reasons::finding(&symptom, reason);
            assert_eq!((finding.cause.as_str(), symptom.at.as_str()), ("win-1: it is so", "WindowsCluster lab/c1"));
        }
    }
}

/// Remedies name fields; whoever renames a field must update its remedies.
#[test]
fn the_fields_that_remedies_name_exist() {
    let known = diagnosis::rules().unwrap();
    let words = known.rules.iter().map(|rule| format!("{} {}", rule.cause, rule.remedy));
    let words = words.chain(FailureCode::ALL.iter().map(|code| format!("{} {} ", code.meaning(), code.remedy())));
    let words: String = words.chain(Reason::ALL.iter().map(|reason| format!("{} {} ", reason.meaning(), reason.remedy()))).collect();
    let schemas: Vec<serde_json::Value> =
        crate::api::custom_resource_definitions().iter().map(|crd| serde_json::to_value(&crd.spec.versions[0].schema).unwrap()).collect();
    let mut named = 0;
    for (at, _) in words.match_indices("spec.") {
        let path: String = words[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '.').collect();
        let pointer: String = path.trim_end_matches('.').split('.').map(|part| format!("/properties/{part}")).collect();
        let exists = schemas.iter().any(|schema| schema.pointer(&format!("/openAPIV3Schema{pointer}")).is_some());
        assert!(exists, "{path}: no kind has this field");
        named += 1;
    }
    assert!(named >= 5, "{named}");
}
