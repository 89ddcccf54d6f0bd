//! Objects that were recorded in one cluster, for another cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::{Kind, text};
use super::control_plane::ControlPlane;
use super::{checkout, manifests};

impl ControlPlane {
    /// Applies the recorded objects, except objects that the API server of every cluster creates for its own addresses. Their kinds must be served.
    pub async fn apply_recording(&self, recording: &str) {
        let path = checkout().join(recording);
        let yaml = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut objects = manifests::documents(&yaml);
        let named: BTreeSet<&str> = objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
        let namespaces: Vec<Value> =
            named.into_iter().map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).collect();
        let left_out = ["Service", "ServiceCIDR", "CustomResourceDefinition", "Deployment"];
        objects.retain(|object| !left_out.contains(&text(object, "/kind")) && text(object, "/metadata/name") != "kubeadm-config");
        let nodes: Vec<Value> = objects.iter().filter(|object| object["kind"] == "Node").cloned().collect();
        for object in &mut objects {
            object.as_object_mut().expect("an object").remove("status");
            // Recordings omit the fields that CAPW does not read.
            if object["kind"] == "DaemonSet" {
                let labels = json!({"app": object["metadata"]["name"]});
                object["spec"]["selector"] = json!({"matchLabels": labels});
                object["spec"]["template"]["metadata"] = json!({"labels": labels});
                // No kubelet reports these Nodes as Ready.
                object["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            }
        }
        self.apply_objects(&[namespaces, objects].concat()).await;
        for node in nodes {
            let name = text(&node, "/metadata/name");
            self.patch_status(Kind::NODE, name, &json!({"status": node["status"]})).await.unwrap_or_else(|e| panic!("status of {name}: {e}"));
        }
    }
}
