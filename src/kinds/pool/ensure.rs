//! Creates the bootstrap configuration of each machine, and writes changes in place.

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::configs;
use super::context::Context;
use super::decide::build;
use super::decide::request::PoolRequest;
use super::decide::template::Template;
use super::observe::PoolMachine;
use super::parallel::all;
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::capi::Machine;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::engine::outcome::ReconcileError;
use crate::kube_api::cluster::Creation;

/// Creates missing bootstrap configurations, writes changes in place, and sets the time limits of the Machines. `true` when something was done.
pub async fn ensure_configs_and_fields(
    ctx: &Context,
    object: &WindowsNodePool,
    request: &PoolRequest,
    template: &Template,
    found: &[PoolMachine],
) -> Result<bool, ReconcileError> {
    let shown = found.iter().filter(|machine| machine.config.is_some()).filter_map(|machine| machine.object.uid());
    let unseen = ctx.memories.unseen_configs(&object.uid().unwrap_or_default(), shown, ctx.management.now());
    let mut calls = Vec::new();
    for machine in found.iter().filter(|machine| machine.object.metadata.deletion_timestamp.is_none()) {
        let lacks = machine.config.is_none() && machine.object.uid().is_none_or(|uid| !unseen.contains(&uid));
        let spec = template.bootstrap.as_ref().filter(|_| lacks && machine.member.up_to_date);
        let patch = build::change(object, template, &machine.object, machine.member.up_to_date);
        let of_core = machine.machine.as_deref().filter(|of_core| !ctx.management.is_stale(*of_core));
        let of_core = of_core.filter(|of_core| of_core.metadata.deletion_timestamp.is_none());
        let deletion = of_core.map(|of_core| (of_core, request.deletion_of(of_core))).filter(|(_, deletion)| !deletion.is_empty());
        if spec.is_some() || patch.is_some() || deletion.is_some() {
            calls.push(ensure_one(ctx, object, machine, spec, patch, deletion));
        }
    }
    Ok(!all(calls).await?.is_empty())
}

async fn ensure_one(
    ctx: &Context,
    object: &WindowsNodePool,
    machine: &PoolMachine,
    spec: Option<&WindowsBootstrapConfigSpec>,
    patch: Option<Value>,
    deletion: Option<(&Machine, Map<String, Value>)>,
) -> Result<(), ReconcileError> {
    if let Some(spec) = spec {
        configure(ctx, object, &machine.object, spec).await?;
    }
    if let Some(patch) = patch {
        let answer = ctx.management.merge(&*machine.object, patch).await;
        ctx.memories.remember_refusal(&object.uid().unwrap_or_default(), &machine.member.name, answer, ctx.management.now())?;
    }
    if let Some((of_core, deletion)) = deletion {
        ctx.management.merge_spec(of_core, json!({ "deletion": deletion })).await?;
    }
    Ok(())
}

async fn configure(
    ctx: &Context,
    object: &WindowsNodePool,
    machine: &WindowsMachine,
    spec: &WindowsBootstrapConfigSpec,
) -> Result<(), ReconcileError> {
    let (pool, config) = (object.uid().unwrap_or_default(), build::config(object, machine, spec));
    let cluster = ClusterRef::of_config(&config).and_then(|cluster| ctx.caches.target_cluster(cluster, object.spec.cluster.as_ref()));
    let config = if let Some(cluster) = cluster { build::adopted_config(config, machine, &cluster) } else { config };
    let answer = ctx.management.cluster.create_if_absent(&config).await;
    match ctx.memories.remember_refusal(&pool, &config.name_any(), answer, ctx.management.now())? {
        // The cache does not show yet that the owner reference was removed.
        Creation::Existing(found) if configs::is_labelled(&found.metadata, object) && configs::is_lost(&found, machine) => {
            configs::adopt(ctx, &found, machine).await
        }
        Creation::Existing(found) if !found.owner_references().iter().any(|o| Some(&o.uid) == machine.metadata.uid.as_ref()) => {
            let name = found.name_any();
            let message = format!("WindowsBootstrapConfig {name} is there and does not belong to the machine of that name: remove it");
            Err(ReconcileError::Invalid(message))
        }
        _ => {
            ctx.memories.configured(&pool, &machine.uid().unwrap_or_default(), ctx.management.now());
            Ok(())
        }
    }
}
