//! A pool changes hands: from standing alone to a MachinePool of Cluster API, or back. Its machines are told whom they belong to now; no
//! VM is made again.

use serde_json::{Value, json};

use super::Context;
use super::act::{all, core_labels, owner_reference};
use super::observe::Seen;
use crate::api::capi::{self, MachinePool};
use crate::api::pool::{JOINS_ANNOTATION, Joins, MADE_FOR_ANNOTATION, WindowsNodePool, joins, made_for};
use crate::controllers::runtime::controller::ReconcileError;

/// `true` when a machine was told.
pub async fn hand_over(ctx: &Context, object: &WindowsNodePool, pool: &MachinePool, seen: &[Seen]) -> Result<bool, ReconcileError> {
    let alone = Joins::of(object).map(|joins| joins.to_string());
    let labels: Vec<(&str, Value)> =
        core_labels(pool).into_iter().map(|(key, value)| (key, if alone.is_some() { Value::Null } else { json!(value) })).collect();
    let mut calls = Vec::new();
    for one in seen {
        let meta = &one.object.metadata;
        // A Machine of core that is still there has the say.
        let stays = joins(meta).is_some() == alone.is_some() || (alone.is_some() && capi::machine_owner(meta.owner_references.as_ref()).is_some());
        if !stays && meta.deletion_timestamp.is_none() {
            calls.push(tell(ctx, object, one, alone.as_deref(), &labels));
        }
    }
    Ok(!all(calls).await?.is_empty())
}

async fn tell(ctx: &Context, object: &WindowsNodePool, seen: &Seen, joins: Option<&str>, labels: &[(&str, Value)]) -> Result<(), ReconcileError> {
    let labels: Value = labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<serde_json::Map<_, _>>().into();
    // The configuration first: whether it was told is seen by its machine.
    if let Some(config) = &seen.config {
        let patch = json!({ "metadata": { "labels": labels, "annotations": { JOINS_ANNOTATION: joins } } });
        ctx.written.note(&ctx.cluster.merge(&**config, patch).await?);
    }
    let annotations = json!({ JOINS_ANNOTATION: joins, MADE_FOR_ANNOTATION: made_for(&seen.object.metadata) });
    let metadata = json!({ "labels": labels, "annotations": annotations, "ownerReferences": [owner_reference(object)],
        "resourceVersion": seen.object.metadata.resource_version });
    ctx.written.note(&ctx.cluster.merge(&*seen.object, json!({ "metadata": metadata })).await?);
    tracing::info!(machine = seen.member.name, joins, "handed over");
    Ok(())
}
