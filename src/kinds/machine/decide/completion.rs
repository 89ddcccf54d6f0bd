//! Labels and taints that CAPW writes on the Nodes of standalone pools, as Cluster API does for the Node of a Machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use crate::api::capi::UNINITIALIZED_TAINT;
use crate::api::machine::{TemplateMetadata, WindowsMachine};
use crate::kinds::pool::decide::in_place;

/// Domains of labels that Cluster API copies from a Machine to its Node: a kubelet may not set most of them itself.
const NODE_LABEL_DOMAINS: [&str; 3] = ["node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];

/// The merge patch that completes the Node of a machine: it sets the labels that the kubelet may not set, removes labels that the machine has
/// lost, and removes the taint that keeps pods away until the labels are set. `None` if the Node is complete.
pub fn completion(object: &WindowsMachine, node: &Node) -> Option<Value> {
    let labels = in_place::metadata(&TemplateMetadata { labels: labels_of_node(object), ..Default::default() }, &node.metadata);
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    let tainted = taints.is_some_and(|all| all.iter().any(|t| t.key == UNINITIALIZED_TAINT));
    let left = tainted.then(|| taints.into_iter().flatten().filter(|t| t.key != UNINITIALIZED_TAINT).collect::<Vec<_>>());
    let changes = [labels.map(|labels| ("metadata", labels)), left.map(|left| ("spec", json!({ "taints": left })))];
    let patch: Map<String, Value> = changes.into_iter().flatten().map(|(field, change)| (field.to_owned(), change)).collect();
    (!patch.is_empty()).then(|| patch.into())
}

fn labels_of_node(object: &WindowsMachine) -> BTreeMap<String, String> {
    let of_node = |key: &str| {
        let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
        NODE_LABEL_DOMAINS.iter().any(|d| domain == *d || domain.strip_suffix(d).is_some_and(|rest| rest.ends_with('.')))
    };
    object.metadata.labels.iter().flatten().filter(|(key, _)| of_node(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests;
