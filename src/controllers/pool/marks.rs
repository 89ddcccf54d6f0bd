//! Labels and taints of Nodes that are there follow the template: the Node first, then the machine's configuration, by which the next
//! pass knows what the Node has. A crash in between does the first again, and finds nothing to do.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::Context;
use super::act::all;
use super::observe::Seen;
use crate::api::bootstrap_config::{Kubelet, WindowsBootstrapConfig, WindowsBootstrapConfigSpec};
use crate::api::pool::{WindowsNodePool, cluster_of};
use crate::bootstrap::render::kubelet::lasting_taints;
use crate::cluster::workload::WorkloadError;
use crate::controllers::shell::ReconcileError;
use crate::lifecycle::pool::State;
use crate::lifecycle::pool::in_place::{Marks, node as change};
use crate::lifecycle::pool::template::Template;

/// Nodes of one pass: the pool has other things to do.
const BATCH: usize = 64;

/// `true` when something was done.
pub async fn follow(ctx: &Context, object: &WindowsNodePool, template: &Template, seen: &[Seen]) -> Result<bool, ReconcileError> {
    let Some(spec) = &template.bootstrap else { return Ok(false) };
    let mut calls = Vec::new();
    for one in seen.iter().filter(|s| matches!(s.member.state, State::Ready { .. } | State::NotReady)) {
        let (Some(config), Some(node)) = (&one.config, node_name(one)) else { continue };
        if calls.len() < BATCH && patch_of_config(&config.spec.kubelet, &spec.kubelet).is_some() {
            calls.push(follow_one(ctx, object, one, config, node, spec));
        }
    }
    Ok(!all(calls).await?.is_empty())
}

fn node_name(seen: &Seen) -> Option<&str> {
    let node = seen.machine.as_ref()?.status.as_ref()?.node_ref.as_ref()?;
    Some(node.name.as_str()).filter(|name| !name.is_empty())
}

async fn follow_one(
    ctx: &Context,
    object: &WindowsNodePool,
    seen: &Seen,
    config: &WindowsBootstrapConfig,
    node: &str,
    spec: &WindowsBootstrapConfigSpec,
) -> Result<(), ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let cluster = cluster_of(&seen.object.metadata).unwrap_or_default();
    if let Err(error) = mark(ctx, &namespace, cluster, seen, config, node, spec).await {
        ctx.workloads.doubt(&namespace, cluster, &error).await;
        return Err(error.into());
    }
    if let Some(patch) = patch_of_config(&config.spec.kubelet, &spec.kubelet) {
        ctx.written.note(&ctx.cluster.merge_spec(config, json!({ "kubelet": patch })).await?);
    }
    Ok(())
}

async fn mark(
    ctx: &Context,
    namespace: &str,
    cluster: &str,
    seen: &Seen,
    config: &WindowsBootstrapConfig,
    name: &str,
    spec: &WindowsBootstrapConfigSpec,
) -> Result<(), WorkloadError> {
    let (had, wanted) = (lasting_taints(&config.spec), lasting_taints(spec));
    let had = Marks { labels: &config.spec.kubelet.node_labels, taints: &had };
    let wanted = Marks { labels: &spec.kubelet.node_labels, taints: &wanted };
    let id = seen.object.spec.provider_id.as_deref();
    // Another one of that name is none of ours.
    let is_ours = |node: &Node| id.is_some() && id == node.spec.as_ref().and_then(|s| s.provider_id.as_deref());
    let workload = ctx.workload(namespace, cluster).await?;
    workload.change_node(name, |node| change(node, had, wanted).filter(|_| is_ours(node))).await
}

/// The merge patch of a configuration's `spec.kubelet`; `None` when it says what the template says.
fn patch_of_config(has: &Kubelet, wanted: &Kubelet) -> Option<Value> {
    if has.node_labels == wanted.node_labels && has.taints == wanted.taints {
        return None;
    }
    let dropped = has.node_labels.keys().filter(|key| !wanted.node_labels.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let labels: BTreeMap<String, Value> = wanted.node_labels.iter().map(|(key, value)| (key.clone(), json!(value))).chain(dropped).collect();
    Some(json!({ "nodeLabels": labels, "taints": wanted.taints }))
}
