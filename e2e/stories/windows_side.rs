//! Story *Windows side*: the output of `capw components objects` is applied to a real cluster. Every field is accepted. Each Windows node gets one
//! pod of Flannel and one of kube-proxy whatever its taints, Linux nodes get none, and the pods' accounts have the rights that the programs need.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use capw::components::misplaced;
use serde_json::{Value, json};

use crate::world::{self, ControlPlane, Kind, Options, checkout, manifests, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(60);
const RECORDING: &str = "src/components/fixtures/flannel-vxlan-4096.yaml";
const NAMESPACE: &str = "capw-windows";
const SETS: [&str; 2] = ["flannel", "kube-proxy"];
const DAEMON_SETS: Kind = Kind::new("apps/v1", "daemonsets");
const PODS: Kind = Kind::new("v1", "pods");
const SECRETS: Kind = Kind::new("v1", "secrets");
const SERVICES: Kind = Kind::new("v1", "services");
const SLICES: Kind = Kind::new("discovery.k8s.io/v1", "endpointslices");

#[test]
fn windows_nodes_get_flannel_and_kube_proxy() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("windows-side")).await;
        let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}, {"key": "unverified", "effect": "NoExecute"}]);
        cp.apply_objects(&[node("linux-1", "linux", json!([])), node("windows-1", "windows", json!([])), node("windows-2", "windows", taints)]).await;

        let objects = manifests::documents(&printed());
        cp.apply_objects(&objects).await;
        step("an API server accepts every field");

        wait_for("each Windows node has a pod of each DaemonSet, and no other node", LIMIT, || async {
            let pods: Vec<(String, String)> = cp.list(PODS, Some(NAMESPACE)).await.iter().map(set_and_node).collect();
            let found: BTreeSet<(&str, &str)> = pods.iter().map(|(set, node)| (set.as_str(), node.as_str())).collect();
            let expected = SETS.iter().flat_map(|set| [(*set, "windows-1"), (*set, "windows-2")]).collect();
            if found == expected && pods.len() == 4 { Ok(()) } else { Err(format!("{pods:?}")) }
        })
        .await;
        step("each Windows node gets one pod of each");

        // The pods mount this ConfigMap.
        wait_for("the cluster's authority is in the namespace", LIMIT, || async {
            cp.get(Kind::CONFIG_MAP, &format!("{NAMESPACE}/kube-root-ca.crt")).await.ok_or("there is none")
        })
        .await;
        rights(&cp).await;
        step("their accounts have the rights that they need");

        let before = versions(&cp, &objects).await;
        cp.apply_objects(&objects).await;
        assert_eq!(versions(&cp, &objects).await, before, "what is there already is not written again");
    });
}

/// The real controller places DaemonSets as the findings predict, and the patches fix them.
#[test]
fn daemon_sets_are_placed_as_is_said() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("placement")).await;
        let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
        cp.apply_objects(&[node("linux-1", "linux", json!([])), node("windows-1", "windows", taints)]).await;
        let file = checkout().join("src/components/scheduling/daemon-sets.yaml");
        let sets = manifests::documents(&std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
        cp.apply_objects(&sets).await;
        let linux = placed(&cp).await;
        assert_eq!(linux.len(), 12, "{linux:?}");
        step("12 DaemonSets for Linux have a pod on the Windows node, and each is told");

        for finding in misplaced(&[recorded(&cp).await]) {
            let name = format!("default/{}", finding.object.name);
            cp.patch(DAEMON_SETS, &name, finding.patch.expect("a patch").value()).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        wait_for("no pod of a DaemonSet for Linux is on the Windows node, and all for Windows are", LIMIT, || async {
            let found = on_windows(&cp).await;
            let wanted: BTreeSet<String> = sets.iter().filter(|set| is_for_windows(set)).map(|set| text(set, "/metadata/name").to_owned()).collect();
            if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
        })
        .await;
        step("the patches put all of them right");
    });
}

fn node(name: &str, os: &str, taints: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": os, "kubernetes.io/arch": "amd64"}},
        "spec": {"taints": taints}})
}

/// Records a cluster as a user does.
async fn recorded(cp: &ControlPlane) -> Value {
    serde_json::from_str(&cp.kubectl(&["get", "nodes,daemonsets", "-A", "-o", "json"]).await).expect("JSON")
}

/// Waits until the pods are where the findings predict. Returns the DaemonSets for Linux that have a pod on the Windows node.
async fn placed(cp: &ControlPlane) -> BTreeSet<String> {
    wait_for("the pods are where the findings say", LIMIT, || async {
        let sets = cp.list(DAEMON_SETS, Some("default")).await;
        let is_seen = |set: &Value| set["status"]["observedGeneration"] == set["metadata"]["generation"];
        if let Some(set) = sets.iter().find(|set| !is_seen(set)) {
            return Err(format!("{} was not looked at yet", text(set, "/metadata/name")));
        }
        let told = misplaced(&[recorded(cp).await]);
        let with = |reason: &str| -> BTreeSet<String> {
            told.iter().filter(|finding| finding.reason.to_string() == reason).map(|finding| finding.object.name.clone()).collect()
        };
        let (linux, shut_out) = (with("LinuxOnWindows"), with("WindowsPodsShutOut"));
        let right: BTreeSet<String> = sets.iter().filter(|set| is_for_windows(set)).map(|set| text(set, "/metadata/name").to_owned()).collect();
        let expected: BTreeSet<String> = linux.union(&right).filter(|name| !shut_out.contains(*name)).cloned().collect();
        let found = on_windows(cp).await;
        if found != expected || shut_out.len() != 6 {
            return Err(format!("{found:?} instead of {expected:?}; shut out: {shut_out:?}"));
        }
        Ok(linux)
    })
    .await
}

fn is_for_windows(set: &Value) -> bool {
    text(set, "/metadata/name").contains("windows-") || text(set, "/metadata/name") == "csi-smb-win"
}

/// Returns the DaemonSets that have a pod on the Windows node.
async fn on_windows(cp: &ControlPlane) -> BTreeSet<String> {
    let pods = cp.list(PODS, Some("default")).await;
    pods.iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .map(set_and_node)
        .filter(|(_, node)| node == "windows-1")
        .map(|(set, _)| set)
        .collect()
}

fn printed() -> String {
    let line =
        ["components", "objects", "--from", RECORDING, "--image", "registry.example.com/capw:v0.2.0", "--api-server", "https://10.0.0.10:6443"];
    let output = Command::new(env!("CARGO_BIN_EXE_capw")).args(line).current_dir(checkout()).output().expect("capw runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the owner of a pod and the node that it was created for, because no scheduler runs here.
fn set_and_node(pod: &Value) -> (String, String) {
    let node = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    (text(pod, "/metadata/ownerReferences/0/name").to_owned(), text(pod, node).to_owned())
}

async fn rights(cp: &ControlPlane) {
    let mut wrong = Vec::new();
    for (account, verb, kind, part, wanted) in [
        ("flannel", "get", Kind::NODE, None, true),
        ("flannel", "list", Kind::NODE, None, true),
        ("flannel", "watch", Kind::NODE, None, true),
        ("flannel", "patch", Kind::NODE, Some("status"), true),
        ("flannel", "patch", Kind::NODE, None, false),
        ("flannel", "get", PODS, None, false),
        ("flannel", "list", SECRETS, None, false),
        ("kube-proxy", "watch", SERVICES, None, true),
        ("kube-proxy", "watch", SLICES, None, true),
        ("kube-proxy", "get", Kind::NODE, None, true),
        ("kube-proxy", "patch", Kind::NODE, Some("status"), false),
        ("kube-proxy", "list", SECRETS, None, false),
    ] {
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        if cp.may_in(&user, verb, kind, part).await != wanted {
            wrong.push(format!("{account}: {verb} {} {}: expected {wanted}", kind.plural, part.unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the versions of the applied objects. For a DaemonSet it is the generation, because the controller writes the status.
async fn versions(cp: &ControlPlane, objects: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for object in objects {
        let (kind, field) = match text(object, "/kind") {
            "DaemonSet" => (DAEMON_SETS, "generation"),
            "ConfigMap" => (Kind::CONFIG_MAP, "resourceVersion"),
            _ => continue,
        };
        let name = format!("{NAMESPACE}/{}", text(object, "/metadata/name"));
        let there = cp.get(kind, &name).await.unwrap_or_else(|| panic!("no {} {name}", kind.plural));
        found.push(format!("{} {name} {}", kind.plural, there["metadata"][field]));
    }
    assert_eq!(found.len(), 4, "{found:?}");
    found
}
