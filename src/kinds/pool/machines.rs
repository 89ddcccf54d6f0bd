//! Creates and removes the machines of a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::context::Context;
use super::decide::build;
use super::decide::removal::{self, Removal};
use super::decide::request::PoolRequest;
use super::decide::step::{PoolStep, Why};
use super::decide::template::Template;
use super::observe::PoolMachine;
use super::parallel::all;
use crate::api::capi::{self, Machine, MachinePool};
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::pool::{REMOVE_ANNOTATION, WindowsNodePool};
use crate::engine::outcome::ReconcileError;
use crate::kinds::machine::decide::placement::Places;
use crate::kube_api::cluster::{Creation, Listed};
use crate::kube_api::error::ApiError;

/// Carries out a step; `true` when something was done.
pub async fn carry_out(
    ctx: &Context,
    object: &WindowsNodePool,
    request: &PoolRequest,
    template: &Template,
    found: &[PoolMachine],
    step: &PoolStep,
) -> Result<bool, ReconcileError> {
    match step {
        PoolStep::Wait => Ok(false),
        PoolStep::Make(places) => {
            let mut calls = Vec::new();
            for (nth, place) in places.iter().enumerate() {
                calls.push(make(ctx, object, request, template, nth, place.as_deref()));
            }
            all(calls).await?;
            tracing::info!(machines = places.len(), "machines created");
            Ok(true)
        }
        PoolStep::Remove { names, why } => {
            if *why == Why::TooMany && !request.is_standalone() {
                refuse_if_annotations_have_changed(ctx, object, request, found).await?;
            }
            let mut calls = Vec::new();
            for machine in found.iter().filter(|machine| names.contains(&machine.member.name)) {
                calls.push(async move {
                    if request.is_standalone() {
                        refuse_if_its_node_serves(ctx, machine, *why).await?;
                    }
                    remove(ctx, object, machine, removal::of_machine(request.is_standalone(), machine.machine.as_deref()), *why).await
                });
            }
            Ok(all(calls).await?.into_iter().any(|done| done))
        }
    }
}

/// Creates one machine. Core creates a Machine for it (`docs/design/cluster-api.md#pool-machines`).
async fn make(
    ctx: &Context,
    object: &WindowsNodePool,
    request: &PoolRequest,
    template: &Template,
    nth: usize,
    place: Option<&str>,
) -> Result<(), ReconcileError> {
    let uid = object.uid().unwrap_or_default();
    let new_name = || build::name(object, &format!("{uid} {} {nth}", ctx.management.now()));
    let unanswered = ctx.memories.take_unanswered(&uid);
    let is_another_try = unanswered.is_some();
    let name = unanswered.unwrap_or_else(new_name);
    let machine = adopted(ctx, build::machine(object, request, template, &name, place));
    let answer = ctx.management.cluster.create_if_absent(&machine).await;
    match ctx.memories.remember_refusal(&uid, &name, answer, ctx.management.now()) {
        Ok(Creation::Made(made)) => ctx.memories.made(&uid, made, ctx.management.now()),
        // An earlier try had no answer, and created this machine.
        Ok(Creation::Existing(found)) if found.owner_references().iter().any(|owner| owner.uid == uid) => {
            ctx.memories.made(&uid, found, ctx.management.now());
        }
        // The name is in use: the next pass chooses another one.
        Ok(Creation::Existing(_)) => return Err(ApiError::AlreadyExists(format!("WindowsMachine {name} is there already")).into()),
        Err(error) => {
            // Whatever the answer to this try, the first try may have created the machine.
            if is_another_try || matches!(error, ApiError::Unreachable(_) | ApiError::NotServed(_) | ApiError::Other(_)) {
                ctx.memories.no_answer(&uid, name);
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// Adds the finalizer and the hypervisor if the cluster and the hypervisors are already known.
fn adopted(ctx: &Context, machine: WindowsMachine) -> WindowsMachine {
    let Some(cluster) = ClusterRef::of(&machine.metadata).and_then(|cluster| ctx.caches.target_cluster(cluster, None)) else { return machine };
    let hypervisors = ctx.caches.hypervisors.names(&machine.namespace().unwrap_or_default());
    // Core gives the Machine of a pool no failure domain.
    build::adopted(machine, &Places { hypervisors: &hypervisors, cluster: &cluster, failure_domain: None })
}

/// Reads created machines that the watch does not show because it is down: otherwise they would be created twice.
pub async fn look_for_unseen(ctx: &Context, object: &WindowsNodePool) -> Result<(), ReconcileError> {
    let pool = object.uid().unwrap_or_default();
    let overdue = ctx.memories.overdue(&pool, ctx.management.now());
    all(overdue.iter().map(|made| look_for(ctx, &pool, made)).collect()).await.map(drop)
}

async fn look_for(ctx: &Context, pool: &str, made: &WindowsMachine) -> Result<(), ReconcileError> {
    let found: Option<WindowsMachine> = ctx.management.cluster.get(&made.namespace().unwrap_or_default(), &made.name_any()).await?;
    match found.filter(|found| found.uid() == made.uid()) {
        Some(found) => ctx.memories.made(pool, found, ctx.management.now()),
        None => ctx.memories.seen(&made.uid().unwrap_or_default()),
    }
    Ok(())
}

/// cluster-autoscaler annotates a Machine, then lowers the number in the MachinePool. These are two watches, and the first may be behind.
async fn refuse_if_annotations_have_changed(
    ctx: &Context,
    object: &WindowsNodePool,
    request: &PoolRequest,
    found: &[PoolMachine],
) -> Result<(), ReconcileError> {
    let labels: Vec<String> = request.core_labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?))).collect();
    let now: Listed<Machine> = ctx.management.cluster.list(&object.namespace().unwrap_or_default(), Some(&labels.join(","))).await?;
    let goes_first = |machine: &ObjectMeta| machine.annotations.as_ref().is_some_and(|all| all.contains_key(capi::DELETE_ANNOTATION));
    let now = now.items.into_iter().map(|machine| machine.metadata).chain(now.unreadable);
    for machine in now {
        let name = machine.name.as_deref().unwrap_or_default();
        let Some(known) = found.iter().find(|known| known.object.name_any() == name) else { continue };
        if goes_first(&machine) != known.machine.as_ref().is_some_and(|machine| goes_first(&machine.metadata)) {
            return Err(ApiError::Conflict(format!("the annotation {} of Machine {name} has just changed", capi::DELETE_ANNOTATION)).into());
        }
    }
    Ok(())
}

/// Removes one machine; `false`: nothing was removed.
async fn remove(ctx: &Context, pool: &WindowsNodePool, machine: &PoolMachine, how: Removal, why: Why) -> Result<bool, ReconcileError> {
    let namespace = machine.object.namespace().unwrap_or_default();
    let (name, uid) = match (how, &machine.machine) {
        (Removal::Nothing, _) | (Removal::Machine, None) => return Ok(false),
        (Removal::Machine, Some(of_core)) => {
            let (name, uid) = (of_core.name_any(), of_core.uid().unwrap_or_default());
            ctx.management.cluster.delete_exact::<Machine>(&namespace, &name, &uid, None).await?;
            (name, uid)
        }
        (Removal::WindowsMachine, _) => {
            let (name, uid) = (machine.object.name_any(), machine.object.uid().unwrap_or_default());
            ctx.management.cluster.delete_exact::<WindowsMachine>(&namespace, &name, &uid, None).await?;
            (name, uid)
        }
    };
    ctx.memories.removed(&pool.uid().unwrap_or_default(), &uid, ctx.management.now());
    let failed = machine.member.failed.as_ref().map(|f| f.why.to_string()).unwrap_or_default();
    tracing::info!(machine = name, why = ?why, failed, "machine removed");
    Ok(true)
}

/// Fails with a conflict if the Node serves by now. If the watch of the Nodes is behind, its state in the cache may be outdated.
async fn refuse_if_its_node_serves(ctx: &Context, machine: &PoolMachine, why: Why) -> Result<(), ReconcileError> {
    let object = &machine.object;
    if !removal::is_because_of_its_node(&machine.member, why) {
        return Ok(());
    }
    let (Some(cluster), Some(identity)) = (ClusterRef::standalone(&object.metadata), ctx.caches.node_of(object)) else { return Ok(()) };
    let Some(node) = ctx.clusters.get_with_nodes(&cluster).await?.node(identity.name.as_str()).await? else { return Ok(()) };
    if removal::is_refuted(&machine.member, why, &identity, &node) {
        return Err(ApiError::Conflict(format!("Node {} is there by now, or Ready", identity.name)).into());
    }
    Ok(())
}

/// Removes all machines of a pool that is being deleted.
pub async fn remove_all(ctx: &Context, object: &WindowsNodePool, found: &[PoolMachine]) -> Result<(), ReconcileError> {
    let standalone = ClusterRef::of_pool(object).is_some();
    let mut calls = Vec::new();
    for machine in found {
        let is_deleted = machine.object.metadata.deletion_timestamp.is_some();
        let how = removal::with_pool(standalone, machine.machine.as_deref(), machine.member.is_leaving(), is_deleted);
        calls.push(remove(ctx, object, machine, how, Why::TooMany));
    }
    all(calls).await.map(drop)
}

/// Reports the number of machines in the MachinePool (`docs/design/cluster-api.md#replicas-managed-elsewhere`).
pub async fn report_replicas(ctx: &Context, pool: &MachinePool, machines: usize) -> Result<(), ReconcileError> {
    let machines = i32::try_from(machines).unwrap_or(i32::MAX);
    if pool.spec.replicas != Some(machines) {
        ctx.management.cluster.merge_spec(pool, json!({ "replicas": machines })).await?;
    }
    Ok(())
}

/// Removes the names of deleted machines from the annotation that requested their removal.
pub async fn prune_removal_annotation(ctx: &Context, object: &WindowsNodePool, found: &[PoolMachine]) -> Result<(), ReconcileError> {
    let named = object.named_for_removal();
    let left: Vec<&str> = named.iter().map(String::as_str).filter(|name| found.iter().any(|machine| machine.member.name == *name)).collect();
    if left.len() == named.len() {
        return Ok(());
    }
    let listed = if left.is_empty() { Value::Null } else { json!(left.join(",")) };
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version(), "annotations": { REMOVE_ANNOTATION: listed } } });
    ctx.management.merge(object, patch).await?;
    Ok(())
}
