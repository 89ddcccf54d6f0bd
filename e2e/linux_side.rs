//! Story *Linux side*: a cluster whose pod network is Flannel as its manifest makes it. A WindowsCluster names the network and says what Windows
//! nodes could not share, with a command for each; the commands and a restart of flanneld put it right. CAPW itself changes nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::workers::{REMOTE_USER, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, manifests, step, text, wait_for};

/// A cluster is looked at within seconds of a change; without one, every five minutes.
const LIMIT: Duration = Duration::from_secs(120);
/// Objects of a cluster that kubeadm and Flannel's manifest made.
const RECORDING: &str = "src/components/fixtures/flannel-manifest.yaml";

#[test]
fn the_linux_side_is_named_and_put_right() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("linux-side")).await;
        let _capw = Capw::start(&cp, &[]).await;
        let workers = Workers { replicas: 0, ..Workers::new("vxlan", &cp).await };
        workers.apply(&cp).await;
        let name = workers.name(&workers.cluster);
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, "Ready", "True", LIMIT).await;
        let unasked = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster");
        assert!(unasked["status"]["components"].is_null() && condition(&unasked, "NetworkCompatible").is_none(), "{:#}", unasked["status"]);

        let mark = cp.audit_mark();
        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {}}})).await.expect("components can be asked for");
        says(&cp, &name, "NoLinuxNodes", &["add a Linux node"]).await;
        step("without a Linux node nothing shows the network");

        linux_side(&cp).await;
        says(&cp, &name, "VniBelow4096", &["ConfigMap kube-flannel/kube-flannel-cfg", "VNI 1", "port 8472", "kubectl rollout restart"]).await;
        let table = cp.kubectl(&["-n", &workers.namespace, "get", "windowsclusters"]).await;
        assert!(table.lines().any(|line| line.contains("flannel/vxlan") && line.contains("VniBelow4096")), "{table}");
        let events = cp.events(&workers.namespace, &workers.cluster).await;
        assert!(events.iter().any(|event| event.starts_with("Warning VniBelow4096: ")), "{events:#?}");
        let network = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster")["status"]["components"]["network"].clone();
        assert_eq!((&network["vni"], &network["port"], &network["role"]), (&json!(1), &json!(8472), &json!("Run")), "{network:#}");
        assert_eq!(network["podNetworks"], json!(["10.244.0.0/16"]));
        step("VNI and port of Linux nodes are not those of Windows");

        let status = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster")["status"]["components"].clone();
        let command = text(&status, "/findings/0/command").to_owned();
        run(&cp, &command).await;
        says(&cp, &name, "NotRolledOut", &["VNI 4096", "VNI 1", "linux-1"]).await;
        step("the command was taken; Linux nodes still use the old settings");

        for node in ["linux-1", "linux-2"] {
            let started_again =
                json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-data": "{\"VNI\":4096,\"VtepMAC\":\"46:7f:5c:1c:0b:01\"}"}}});
            cp.patch(Kind::NODE, node, &started_again).await.expect("a Node");
        }
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, "NetworkCompatible", "True", LIMIT).await;
        let table = cp.kubectl(&["-n", &workers.namespace, "get", "windowsclusters"]).await;
        assert!(table.lines().any(|line| line.contains("flannel/vxlan") && line.contains("NetworkUsable")), "{table}");
        step("Windows nodes can be on the network");

        let written: Vec<String> = cp
            .audit_since(mark)
            .into_iter()
            // The reviews only ask which rights there are.
            .filter(|event| event.user == REMOTE_USER && event.is_write() && event.resource != "selfsubjectaccessreviews")
            .map(|event| format!("{} {}", event.verb, event.uri))
            .collect();
        assert_eq!(written, [""; 0], "CAPW only reads");

        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"mode": "Off"}}})).await.expect("components can be left out");
        cp.wait_object(Kind::WINDOWS_CLUSTER, &name, "nothing is said of the network", LIMIT, |object| {
            (object["status"]["components"].is_null() && condition(object, "NetworkCompatible").is_none()).then_some(())
        })
        .await;
        cp.delete(Kind::CLUSTER, &name).await;
        workers.wait_gone(&cp, LIMIT).await;
    });
}

/// The recorded objects, but those that every cluster has: the API server made them for its own addresses.
async fn linux_side(cp: &ControlPlane) {
    let path = world::checkout().join(RECORDING);
    let yaml = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut objects = manifests::documents(&yaml);
    objects.retain(|object| !["Service", "ServiceCIDR"].contains(&text(object, "/kind")) && text(object, "/metadata/name") != "kubeadm-config");
    let nodes: Vec<Value> = objects.iter().filter(|object| object["kind"] == "Node").cloned().collect();
    for object in &mut objects {
        object.as_object_mut().expect("an object").remove("status");
        // Recordings leave out what is not read.
        if object["kind"] == "DaemonSet" {
            let labels = json!({"app": object["metadata"]["name"]});
            object["spec"]["selector"] = json!({"matchLabels": labels});
            object["spec"]["template"]["metadata"] = json!({"labels": labels});
        }
    }
    objects.insert(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-flannel"}}));
    cp.apply_objects(&objects).await;
    for node in nodes {
        let name = text(&node, "/metadata/name");
        cp.patch_status(Kind::NODE, name, &json!({"status": node["status"]})).await.unwrap_or_else(|e| panic!("status of {name}: {e}"));
    }
}

/// Waits for the condition to be False for this reason, with these words.
async fn says(cp: &ControlPlane, name: &str, reason: &str, parts: &[&str]) {
    wait_for(&format!("{name} says {reason} {parts:?}"), LIMIT, || async {
        let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.ok_or("no WindowsCluster")?;
        let found = condition(&object, "NetworkCompatible").cloned().unwrap_or_default();
        let is_right = found["status"] == "False" && found["reason"] == reason && parts.iter().all(|part| text(&found, "/message").contains(part));
        if is_right { Ok(()) } else { Err(format!("{found:#}")) }
    })
    .await;
}

/// A command of a finding, as a shell would take it apart.
async fn run(cp: &ControlPlane, command: &str) {
    let words = shell_words(command);
    assert_eq!(words.first().map(String::as_str), Some("kubectl"), "{command}");
    cp.kubectl(&words.iter().skip(1).map(String::as_str).collect::<Vec<_>>()).await;
}

/// By a real shell.
fn shell_words(command: &str) -> Vec<String> {
    let script = format!("printf '%s\\0' {command}");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh runs");
    assert!(output.status.success(), "{command}");
    String::from_utf8(output.stdout).expect("text").split_terminator('\0').map(str::to_owned).collect()
}
