//! The pod network of a cluster without Cluster API: a WindowsCluster names the cluster as its pools do, and installs the network on their nodes.

use serde_json::{Value, json};
use tokio::process::Command;

use super::{LIMIT, POOL};
use crate::linux_side::{self, BROUGHT, COMPATIBLE, COMPONENTS, gone};
use crate::workers::REMOTE_USER;
use crate::world::{self, Capw, ControlPlane, Kind, Options, Tools, condition, step, text};

const NETWORK_SAMPLE: &str = include_str!("../../../config/samples/standalone-network.yaml");
const RECORDING: &str = "src/components/fixtures/flannel-vxlan-4096.yaml";
const NAME: &str = "default/production";

#[test]
fn a_network_for_standalone_pools() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("network-here")).await;
        let other = ControlPlane::start(Options { scheduler: true, ..Options::plain() }.named("network-there")).await;
        let capw = Capw::start(&cp, &["--image=registry.example.com/capw:v0"]).await;
        // No kubelet runs the pods that probe a node.
        cp.apply(&NETWORK_SAMPLE.replace("mode: Auto", "mode: Auto\n    probes: {mode: \"Off\"}")).await;
        cp.wait_object(Kind::WINDOWS_CLUSTER, NAME, "it says that the Secret is missing", LIMIT, |object| {
            condition(object, COMPATIBLE).filter(|found| found["status"] == "Unknown" && found["reason"] == "KubeconfigMissing").map(drop)
        })
        .await;
        step("the WindowsCluster waits for the kubeconfig");

        other.apply_recording(RECORDING).await;
        let kubeconfig = kubeconfig(&other).await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "production", "namespace": "default"},
            "stringData": {"value": kubeconfig}});
        cp.apply_objects(&[secret]).await;
        linux_side::says(&cp, NAME, COMPONENTS, "PartNotReady", &["flannel: 0 of 2 pods are ready", "kube-proxy: 0 of 2"]).await;
        let nodes = windows_nodes(&other).await;
        assert!(nodes.len() == 2 && nodes.iter().all(linux_side::is_unverified), "{nodes:#?}");
        linux_side::verified(&cp, NAME, "0/2").await;
        let (exit, answer, errors) = capw.ask(&cp, &["status", "-n", "default"]).await;
        assert!(answer.contains("WindowsCluster default/production: network flannel/vxlan"), "{exit} {answer}{errors}");
        step("the network is brought to the nodes of the pool, which no pod is placed on yet");

        for node in &nodes {
            for part in ["flannel", "kube-proxy"] {
                linux_side::pod_is_ready(&other, BROUGHT, part, text(node, "/metadata/name")).await;
            }
        }
        linux_side::verified(&cp, NAME, "2/2").await;
        cp.wait_condition(Kind::WINDOWS_CLUSTER, NAME, COMPONENTS, "True", LIMIT).await;
        let table = cp.kubectl(&["get", "windowsclusters"]).await;
        let is_shown = |line: &str| ["production", "flannel/vxlan", "NetworkUsable", "2/2"].iter().all(|part| line.contains(part));
        assert!(table.lines().any(is_shown), "{table}");
        assert!(!windows_nodes(&other).await.iter().any(linux_side::is_unverified), "the taint is gone");
        step("both nodes are verified");

        what_cannot_be_written(&cp).await;

        cp.delete(Kind::WINDOWS_CLUSTER, NAME).await;
        cp.wait_object(Kind::WINDOWS_CLUSTER, NAME, "it says what it waits for", LIMIT, |object| {
            condition(object, "Deleting").filter(|found| text(found, "/message").contains("2 Windows machines")).map(drop)
        })
        .await;
        assert!(!gone::left(&other, NAME).await.is_empty(), "the nodes need it");
        cp.delete(Kind::WINDOWS_NODE_POOL, POOL).await;
        cp.wait_gone(Kind::WINDOWS_CLUSTER, NAME, LIMIT).await;
        gone::wait_gone(&other, NAME).await;
        step("what was brought goes after the last machine");

        let mut refused = other.audit();
        refused.retain(|event| event.user == REMOTE_USER && event.code == 403);
        assert!(refused.is_empty(), "CAPW was refused: {:#?}", refused.iter().map(|event| (&event.verb, &event.uri)).collect::<Vec<_>>());
    });
}

/// In the cluster that CAPW runs in: CAPW reports the right that it lacks, and installs the network when the page's commands have granted it.
pub async fn in_the_own_cluster(cp: &ControlPlane) {
    cp.apply_recording(RECORDING).await;
    let (cluster, _) = NETWORK_SAMPLE.split_once("---").expect("the WindowsCluster comes first");
    let own = cluster.replace("cluster: # the same as in the pools\n    kubeconfigSecretRef:\n      name: production", "cluster: {}");
    assert!(own.contains("cluster: {}"), "{own}");
    cp.apply(&own).await;
    cp.wait_object(Kind::WINDOWS_CLUSTER, NAME, "it says which right is missing", LIMIT, |object| {
        let forbidden = |found: &&Value| found["reason"] == "WorkloadClusterForbidden" && text(found, "/message").contains("list");
        condition(object, COMPATIBLE).filter(forbidden).map(drop)
    })
    .await;
    page_commands(cp, include_str!("../../../docs/standalone.md"), "## The pod network", &[]).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, NAME, COMPATIBLE, "True", LIMIT).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, NAME, COMPONENTS, "True", LIMIT).await;
    assert!(!gone::left(cp, NAME).await.is_empty(), "nothing was brought");
    cp.delete(Kind::WINDOWS_CLUSTER, NAME).await;
    cp.wait_gone(Kind::WINDOWS_CLUSTER, NAME, LIMIT).await;
    gone::wait_gone(cp, NAME).await;
}

/// A kubeconfig of the cluster, created with the commands of the page.
async fn kubeconfig(cp: &ControlPlane) -> String {
    let file = cp.directory().join("capw.kubeconfig");
    let path = file.display().to_string();
    page_commands(cp, include_str!("../../../docs/security.md"), "## In a workload cluster", &[("capw.kubeconfig", &path)]).await;
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Runs the first commands of a page's section, as an administrator of the cluster.
async fn page_commands(cp: &ControlPlane, page: &str, section: &str, replaced: &[(&str, &str)]) {
    let section = page.split_once(section).expect("the section").1;
    let commands = section.split_once("```sh\n").expect("its commands").1.split_once("```").expect("their end").0;
    let commands = replaced.iter().fold(commands.to_owned(), |commands, (from, to)| commands.replace(from, to));
    let programs = Tools::ensure().kubectl.parent().expect("a folder").display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &commands]).current_dir(world::checkout());
    shell.env("PATH", path).env("KUBECONFIG", cp.kubeconfig()).env("KUBECACHEDIR", cp.directory().join("kubectl"));
    let done = shell.output().await.expect("the program bash runs");
    assert!(done.status.success(), "{commands}: {}", String::from_utf8_lossy(&done.stderr));
}

async fn windows_nodes(cp: &ControlPlane) -> Vec<Value> {
    let mut nodes = cp.list(Kind::NODE, None).await;
    nodes.retain(|node| !text(node, "/metadata/name").starts_with("linux-"));
    nodes
}

async fn what_cannot_be_written(cp: &ControlPlane) {
    for (spec, words) in [
        (json!({"cluster": null}), "cluster: cannot be added or removed later"),
        (json!({"cluster": {"kubeconfigSecretRef": {"name": "elsewhere"}}}), "what was brought stays in its cluster"),
    ] {
        let refused = cp.patch(Kind::WINDOWS_CLUSTER, NAME, &json!({"spec": spec})).await.expect_err("it is refused").to_string();
        assert!(refused.contains(words), "{refused}");
    }
}
