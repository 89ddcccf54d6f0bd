//! The settings of the real kube-proxy.exe of each version, in the networks that CAPW extends to Windows nodes, or only kube-proxy.

use capw::components::{Parameters, read, windows_side};
use serde_json::{Value, json};

use super::judge::Judge;
use super::merged;
use crate::world::checkout;
use crate::world::manifests::documents;

/// Recorded clusters, and kube-proxy's source address on a node; only an overlay needs one.
const NETWORKS: [(&str, Option<&str>); 4] = [
    ("flannel-vxlan-4096", Some("10.244.3.2")),
    ("flannel-host-gw", None),
    ("calico-operator-windows", Some("192.168.3.2")),
    ("calico-operator-bgp-windows", None),
];
/// The version of Kubernetes in the recordings.
const RECORDED: &str = "v1.36.3";
const CONFIGURATION: &str = r"C:\etc\kubernetes\kube-proxy.json";

/// Judges the settings of all networks and versions; returns the number of files.
pub fn judge_networks(judge: &Judge, versions: &[&str]) -> usize {
    for version in versions {
        for (recording, source_vip) in NETWORKS {
            let written = merged(&settings(recording, version), &of_node(source_vip));
            let flags = [format!("--config={CONFIGURATION}"), "--v=2".into()];
            judge.kube_proxy(version, CONFIGURATION, &written.to_string(), &flags, &format!("{recording} with {version}"));
        }
    }
    versions.len() * NETWORKS.len()
}

/// CAPW's settings for kube-proxy where the Linux nodes run that version.
fn settings(recording: &str, version: &str) -> Value {
    let path = checkout().join(format!("src/components/fixtures/{recording}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text.contains(&format!("kube-proxy:{RECORDED}")), "{recording} runs another kube-proxy");
    let objects = documents(&text.replace(RECORDED, &format!("v{version}")));
    let parameters =
        Parameters { image: "registry.example.com/capw:v0".into(), api_server: "https://127.0.0.1:6443".into(), pull_secrets: Vec::new() };
    let brought = windows_side(&read(&objects), &parameters).unwrap_or_else(|why| panic!("{recording}: {why}"));
    let map = brought.iter().find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == "kube-proxy").expect("its ConfigMap");
    serde_json::from_str(map["data"]["config.json"].as_str().expect("a file")).expect("JSON")
}

/// The settings that capw-node.exe adds on a node.
fn of_node(source_vip: Option<&str>) -> Value {
    json!({"hostnameOverride": "win-1", "clientConnection": {"kubeconfig": r"C:\etc\kubernetes\kube-proxy.conf"}, "winkernel": {"sourceVip": source_vip}})
}
