//! Hands a pool over from standalone to a MachinePool of Cluster API, or back: its machines learn which cluster they belong to now, and
//! no VM is made again.

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::observe::{PoolMachine, is_lost};
use super::{Context, all};
use crate::api::capi;
use crate::api::cluster_ref::{ClusterRef, JOINS_ANNOTATION, MADE_FOR_ANNOTATION, made_for};
use crate::api::pool::WindowsNodePool;
use crate::controllers::runtime::outcome::ReconcileError;
use crate::lifecycle::pool::build::owner_reference;
use crate::lifecycle::pool::request::PoolRequest;

/// `true` when a machine was written.
pub async fn hand_over(ctx: &Context, object: &WindowsNodePool, request: &PoolRequest, found: &[PoolMachine]) -> Result<bool, ReconcileError> {
    let standalone = request.is_standalone();
    let mut calls = Vec::new();
    for machine in found {
        let meta = &machine.object.metadata;
        // A Machine of core that is still there has the say.
        let stays =
            ClusterRef::standalone(meta).is_some() == standalone || (standalone && capi::machine_owner(meta.owner_references.as_ref()).is_some());
        if meta.deletion_timestamp.is_some() {
            continue;
        }
        if !stays {
            calls.push(hand_over_one(ctx, object, request, machine).boxed());
        } else if is_lost(&machine.object, object) {
            calls.push(adopt(ctx, object, request, machine).boxed());
        }
    }
    Ok(!all(calls).await?.is_empty())
}

/// Puts the owner reference back.
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
    // The configuration first: whether it was written is seen by its machine.
    if let Some(config) = &machine.config {
        let patch = json!({ "metadata": { "labels": labels, "annotations": { JOINS_ANNOTATION: joins } } });
        ctx.management.merge(&**config, patch).await?;
    }
    let annotations = json!({ JOINS_ANNOTATION: joins, MADE_FOR_ANNOTATION: made_for(&machine.object.metadata) });
    let metadata = json!({ "labels": labels, "annotations": annotations, "ownerReferences": [owner_reference(object, request.is_standalone())],
        "resourceVersion": machine.object.metadata.resource_version });
    ctx.management.merge(&*machine.object, json!({ "metadata": metadata })).await?;
    tracing::info!(machine = machine.member.name, joins, "handed over");
    Ok(())
}
