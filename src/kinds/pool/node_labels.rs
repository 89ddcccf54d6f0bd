//! Labels and taints of existing Nodes follow the template: first the Node is written, then the machine's configuration, from which the next
//! pass knows the Node's labels and taints. After a crash in between, the first write is repeated without effect.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::context::Context;
use super::decide::in_place::{LabelsAndTaints, node as change};
use super::decide::situation::State;
use super::decide::template::Template;
use super::observe::PoolMachine;
use super::parallel::all;
use crate::api::bootstrap_config::{Kubelet, WindowsBootstrapConfig, WindowsBootstrapConfigSpec};
use crate::api::cluster_ref::ClusterRef;
use crate::bootstrap::render::kubelet::lasting_taints;
use crate::engine::outcome::ReconcileError;
use crate::kube_api::workload::WorkloadError;

/// The most Nodes written in one pass: the pool has other work to do.
const BATCH: usize = 64;

/// Updates the Nodes. Returns `true` when something was done.
pub async fn follow(ctx: &Context, template: &Template, found: &[PoolMachine]) -> Result<bool, ReconcileError> {
    let Some(spec) = &template.bootstrap else { return Ok(false) };
    let mut calls = Vec::new();
    for machine in found.iter().filter(|machine| matches!(machine.member.state, State::Ready { .. } | State::NotReady)) {
        let (Some(config), Some(node)) = (&machine.config, machine.request.as_ref().and_then(|r| r.node.as_deref())) else { continue };
        if calls.len() < BATCH && patch_of_config(&config.spec.kubelet, &spec.kubelet).is_some() {
            calls.push(follow_one(ctx, machine, config, node, spec));
        }
    }
    Ok(!all(calls).await?.is_empty())
}

async fn follow_one(
    ctx: &Context,
    machine: &PoolMachine,
    config: &WindowsBootstrapConfig,
    node: &str,
    spec: &WindowsBootstrapConfigSpec,
) -> Result<(), ReconcileError> {
    let Some(cluster) = ClusterRef::of(&machine.object.metadata) else { return Ok(()) };
    if let Err(error) = change_node(ctx, &cluster, machine, config, node, spec).await {
        ctx.clusters.note_error(&cluster, &error).await;
        return Err(error.into());
    }
    if let Some(patch) = patch_of_config(&config.spec.kubelet, &spec.kubelet) {
        ctx.management.merge_spec(config, json!({ "kubelet": patch })).await?;
    }
    Ok(())
}

async fn change_node(
    ctx: &Context,
    cluster: &ClusterRef,
    machine: &PoolMachine,
    config: &WindowsBootstrapConfig,
    name: &str,
    spec: &WindowsBootstrapConfigSpec,
) -> Result<(), WorkloadError> {
    let (had, wanted) = (lasting_taints(&config.spec), lasting_taints(spec));
    let had = LabelsAndTaints { labels: &config.spec.kubelet.node_labels, taints: &had };
    let wanted = LabelsAndTaints { labels: &spec.kubelet.node_labels, taints: &wanted };
    // Core finds a Node by its provider ID alone.
    let Some(identity) = ctx.caches.node_of(&machine.object) else { return Ok(()) };
    let workload = ctx.clusters.get(cluster).await?;
    workload.change_node(name, |node| change(node, had, wanted).filter(|_| identity.is_of(node))).await
}

/// The merge patch of a configuration's `spec.kubelet`; `None` when it matches the template.
fn patch_of_config(has: &Kubelet, wanted: &Kubelet) -> Option<Value> {
    if has.node_labels == wanted.node_labels && has.taints == wanted.taints {
        return None;
    }
    let dropped = has.node_labels.keys().filter(|key| !wanted.node_labels.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let labels: BTreeMap<String, Value> = wanted.node_labels.iter().map(|(key, value)| (key.clone(), json!(value))).chain(dropped).collect();
    Some(json!({ "nodeLabels": labels, "taints": wanted.taints }))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use super::*;
    use crate::api::machine::WindowsMachine;
    use crate::api::name::VmUuid;
    use crate::domain::identity::HYPERVISOR_ANNOTATION;
    use crate::engine::caches::Caches;
    use crate::kinds::pool::decide::situation::Member;
    use crate::testing::server::{Server, connect, kubeconfig};
    use crate::testing::{holding, reach, read, shared_to};

    /// Core names a Node that only claims to belong to the machine.
    #[tokio::test]
    async fn a_node_of_another_machine_gets_no_labels() {
        let id = |uid: &str| format!("windows://h1/{}", VmUuid::of(uid));
        let machine = |namespace: &str, uid: &str| {
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
                "metadata": {"name": "win-1", "namespace": namespace, "uid": uid, "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
                    "annotations": {HYPERVISOR_ANNOTATION: "h1"}}, "spec": {"image": "w", "providerID": id("w")}})
        };
        let config = |labels: Value| -> WindowsBootstrapConfig {
            read(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
                "metadata": {"name": "win-1", "namespace": "lab"}, "spec": {"kubelet": {"nodeLabels": labels}}}))
        };
        let member = Member {
            name: "win-1".into(),
            created: jiff::Timestamp::UNIX_EPOCH,
            domain: None,
            up_to_date: true,
            state: State::NotReady,
            failed: None,
            given_up_at: None,
            delete_first: false,
            named: false,
            build: None,
        };
        for (uid, others, of_node, is_changed) in [
            ("w", vec![], "w", true),
            ("w", vec![], "another", false),
            // Every user who may write a WindowsMachine can write the provider ID of another one.
            ("copy", vec![machine("other", "w")], "w", false),
            ("restored", vec![], "w", true),
        ] {
            let object: Arc<WindowsMachine> = Arc::new(read(machine("lab", uid)));
            let cluster = ClusterRef::of(&object.metadata).unwrap();
            let found = PoolMachine { object, machine: None, request: None, config: None, member: member.clone() };
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": "n"}, "spec": {"providerID": id(of_node)}});
            let server = Arc::new(Mutex::new(Server { others: vec![node], ..Server::holding([]) }));
            let caches = Caches { windows_machines: holding(others), ..Caches::empty() };
            let (shared, _script) = shared_to(caches, 1, vec![kubeconfig()], connect(&server));
            let (had, wanted) = (config(json!({})), config(json!({"a": "b"})));
            let ctx = shared.pool();
            reach(&ctx.clusters, &cluster).await;
            change_node(&ctx, &cluster, &found, &had, "win-1", &wanted.spec).await.unwrap();
            assert_eq!(server.lock().asked.contains(&"PATCH /api/v1/nodes/win-1".to_owned()), is_changed, "{uid} {of_node}");
        }
    }
}
