//! The bootstrap configurations of a pool's machines, and configurations that lost their owner: after a restore, the owner has another UID, and other
//! clients remove owner references. A deleted machine would leave such a configuration behind, and a deleted pool waits for all configurations.

use std::sync::Arc;

use futures::FutureExt;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::context::Context;
use super::decide::build::is_name_of;
use super::observe;
use super::parallel::all;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi;
use crate::api::machine::WindowsMachine;
use crate::api::pool::{POOL_LABEL, WindowsNodePool};
use crate::engine::outcome::ReconcileError;

/// The cached configurations of the pool, each with its machine if the pool has it. Users copy labels: without owner, only the name counts.
pub fn of_pool(ctx: &Context, object: &WindowsNodePool) -> Vec<(Arc<WindowsBootstrapConfig>, Option<Arc<WindowsMachine>>)> {
    let namespace = object.namespace().unwrap_or_default();
    let labelled = ctx.caches.configs.all(&namespace).into_iter().filter(|config| is_labelled(&config.metadata, object));
    let with_machine = labelled.map(|config| {
        let machine = ctx.caches.windows_machines.get(&namespace, &config.name_any());
        (config, machine.filter(|machine| observe::is_its(&machine.metadata, object)))
    });
    with_machine
        .filter(|(config, machine)| machine.is_some() || !config.owner_references().is_empty() || is_name_of(object, &config.name_any()))
        .collect()
}

/// The number of configurations, including unreadable ones.
pub fn count(ctx: &Context, object: &WindowsNodePool) -> usize {
    let unreadable = ctx.caches.configs.unreadable(&object.namespace().unwrap_or_default());
    unreadable.iter().filter(|config| is_labelled(config, object)).count() + of_pool(ctx, object).len()
}

/// Whether the configuration has the label of the pool.
pub fn is_labelled(config: &ObjectMeta, object: &WindowsNodePool) -> bool {
    config.labels.as_ref().and_then(|labels| labels.get(POOL_LABEL)) == Some(&capi::label_value(&object.name_any()))
}

/// Whether nothing owns the machine's configuration, or its owner is the machine before a restore, with another UID.
pub fn is_lost(config: &WindowsBootstrapConfig, machine: &WindowsMachine) -> bool {
    let kind = WindowsMachine::kind(&());
    config
        .owner_references()
        .iter()
        .all(|owner| owner.kind == kind && owner.name == machine.name_any() && Some(&owner.uid) != machine.meta().uid.as_ref())
}

/// Restores the owner of each lost configuration, and deletes each that has neither owner nor machine. Returns `true` when something was written.
pub async fn fix(ctx: &Context, object: &WindowsNodePool) -> Result<bool, ReconcileError> {
    let mut calls = Vec::new();
    for (config, machine) in of_pool(ctx, object) {
        match machine {
            Some(machine) if is_lost(&config, &machine) => calls.push(async move { adopt(ctx, &config, &machine).await.map(|()| true) }.boxed()),
            None if is_left(&config, object) => calls.push(remove(ctx, object, config).boxed()),
            _ => {}
        }
    }
    Ok(all(calls).await?.into_iter().any(|written| written))
}

/// Restores the owner reference.
pub async fn adopt(ctx: &Context, config: &WindowsBootstrapConfig, machine: &WindowsMachine) -> Result<(), ReconcileError> {
    let owners: Vec<_> = machine.owner_ref(&()).into_iter().collect();
    let patch = json!({ "metadata": { "ownerReferences": owners, "resourceVersion": config.resource_version() } });
    ctx.management.merge(config, patch).await?;
    tracing::info!(machine = machine.name_any(), "the owner reference of its configuration was put back");
    Ok(())
}

/// Whether nothing owns the configuration, and it is not being deleted.
fn is_left(config: &WindowsBootstrapConfig, object: &WindowsNodePool) -> bool {
    is_labelled(&config.metadata, object) && config.owner_references().is_empty() && config.metadata.deletion_timestamp.is_none()
}

/// Deletes a configuration without owner if the API server has no machine of its name; the caches may be behind. `false` if it was not deleted.
async fn remove(ctx: &Context, object: &WindowsNodePool, config: Arc<WindowsBootstrapConfig>) -> Result<bool, ReconcileError> {
    let (namespace, name, uid) = (config.namespace().unwrap_or_default(), config.name_any(), config.uid().unwrap_or_default());
    let cluster = &ctx.management.cluster;
    if cluster.get::<WindowsMachine>(&namespace, &name).await?.is_some() {
        return Ok(false);
    }
    let now: Option<WindowsBootstrapConfig> = cluster.get(&namespace, &name).await?;
    let Some(now) = now.filter(|now| now.uid() == config.uid() && is_left(now, object)) else { return Ok(false) };
    cluster.delete_exact::<WindowsBootstrapConfig>(&namespace, &name, &uid, now.resource_version().as_deref()).await?;
    tracing::info!(config = name, "its machine is gone, and nothing owned it: deleted");
    Ok(true)
}
