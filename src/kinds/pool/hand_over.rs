//! Hands a pool over from standalone to a MachinePool of Cluster API, or back: its machines are moved to the new cluster reference, and
//! no VM is recreated.

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::decide::build::owner_reference;
use super::decide::request::PoolRequest;
use super::observe::{PoolMachine, is_lost};
use super::parallel::all;
use crate::api::capi;
use crate::api::cluster_ref::{ClusterRef, JOINS_ANNOTATION, MADE_FOR_ANNOTATION, made_for};
use crate::api::pool::WindowsNodePool;
use crate::engine::outcome::ReconcileError;

/// Hands the machines over. Returns `true` when a machine was written.
pub async fn hand_over(ctx: &Context, object: &WindowsNodePool, request: &PoolRequest, found: &[PoolMachine]) -> Result<bool, ReconcileError> {
    let standalone = request.is_standalone();
    let mut calls = Vec::new();
    for machine in found {
        let meta = &machine.object.metadata;
        if meta.deletion_timestamp.is_some() {
            continue;
        }
        if !stays(meta, standalone) {
            calls.push(hand_over_one(ctx, object, request, machine).boxed());
        } else if is_lost(meta, object) {
            calls.push(adopt(ctx, object, request, machine).boxed());
        }
    }
    Ok(!all(calls).await?.is_empty())
}

/// Restores the owner reference.
async fn adopt(ctx: &Context, object: &WindowsNodePool, request: &PoolRequest, machine: &PoolMachine) -> Result<(), ReconcileError> {
    let meta = &machine.object.metadata;
    let others = meta.owner_references.iter().flatten().filter(|owner| owner.kind != "WindowsNodePool").cloned();
    let owners: Vec<OwnerReference> = others.chain([owner_reference(object, request.is_standalone())]).collect();
    let patch = json!({ "metadata": { "ownerReferences": owners, "resourceVersion": meta.resource_version } });
    ctx.management.merge(&*machine.object, patch).await?;
    tracing::info!(machine = machine.member.name, "its owner reference was put back");
    Ok(())
}

async fn hand_over_one(ctx: &Context, object: &WindowsNodePool, request: &PoolRequest, machine: &PoolMachine) -> Result<(), ReconcileError> {
    let labels: Map<String, Value> = request.core_labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let joins = request.standalone.as_ref().map(ToString::to_string);
    // The configuration is written first: the state of the machine shows whether the hand-over is complete.
    if let Some(config) = &machine.config {
        let annotations = json!({ JOINS_ANNOTATION: joins, MADE_FOR_ANNOTATION: request.cluster() });
        let patch = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        ctx.management.merge(&**config, patch).await?;
    }
    let annotations = json!({ JOINS_ANNOTATION: joins, MADE_FOR_ANNOTATION: made_for(&machine.object.metadata) });
    let metadata = json!({ "labels": labels, "annotations": annotations, "ownerReferences": [owner_reference(object, request.is_standalone())],
        "resourceVersion": machine.object.metadata.resource_version });
    ctx.management.merge(&*machine.object, json!({ "metadata": metadata })).await?;
    tracing::info!(machine = machine.member.name, joins, "machine handed over");
    Ok(())
}

/// Whether a machine already belongs where its pool does.
fn stays(meta: &ObjectMeta, standalone: bool) -> bool {
    if !standalone {
        return ClusterRef::standalone(meta).is_none();
    }
    // An existing Machine of core takes precedence.
    let is_of_core = capi::machine_owner(meta.owner_references.as_ref()).is_some();
    is_of_core || (ClusterRef::standalone(meta).is_some() && capi::cluster_name(meta.labels.as_ref()).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_moves_when_its_pool_does_and_sheds_a_label_of_others() {
        let machine = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "u"}]);
        for (label, joins, owners, standalone, there) in [
            (Some("c1"), None, json!([]), false, true),
            (Some("c1"), None, json!([]), true, false),
            (None, Some("own/cluster"), json!([]), true, true),
            (None, Some("own/cluster"), json!([]), false, false),
            (Some("c1"), None, machine, true, true),
            (Some("other"), Some("own/cluster"), json!([]), true, false),
        ] {
            let labels: Map<String, Value> = label.map(|name| (capi::CLUSTER_NAME_LABEL.to_owned(), json!(name))).into_iter().collect();
            let annotations: Map<String, Value> = joins.map(|text| (JOINS_ANNOTATION.to_owned(), json!(text))).into_iter().collect();
            let meta = json!({"namespace": "lab", "labels": labels, "annotations": annotations, "ownerReferences": owners});
            assert_eq!(stays(&serde_json::from_value(meta).unwrap(), standalone), there, "{label:?} {joins:?} {standalone}");
        }
    }
}
