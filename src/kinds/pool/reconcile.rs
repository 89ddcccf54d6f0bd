//! The pass for a WindowsNodePool.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, MANAGER, report_status};
use super::decide::batch::{decide, nodes_refused, refused};
use super::decide::messages::unread;
use super::decide::request::PoolRequest;
use super::decide::situation::{Goal, Member, ObservedPool};
use super::decide::step::PoolStep;
use super::observe::{self, PoolMachine, PoolOwner};
use super::{configs, ensure, hand_over, machines, node_labels, report, template};
use crate::api::capi::{Cluster, MachinePool};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::pool::{FINALIZER, MOST_MACHINES, WindowsNodePool};
use crate::bootstrap::render::reserves::capacity;
use crate::domain::decision::waiting;
use crate::domain::gate::{has_finalizer, paused, paused_condition};
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::fault;

/// A fault that a person can fix outside the pool is checked again after this time.
const RECHECK: Duration = Duration::from_secs(10);
/// The pause between two passes of a pool: a thousand machines change a hundred times a second while they start.
const REST: SignedDuration = SignedDuration::from_millis(300);

pub async fn reconcile(object: Arc<WindowsNodePool>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    if let Some(left) = ctx.memories.rests(&object.uid().unwrap_or_default(), REST, ctx.management.now()) {
        return Ok(Outcome::requeue_after(Duration::try_from(left).unwrap_or_default()));
    }
    let owner = observe::owner(ctx, object);
    let has_finalizer = has_finalizer(&object.metadata, FINALIZER);
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting && !has_finalizer {
        return Ok(Outcome::done());
    }
    if let PoolOwner::Standalone(cluster) = &owner {
        watch_nodes(ctx, cluster).await;
    }
    let mut cluster = observe::cluster(ctx, object);
    let is_missing = cluster.is_none() && observe::names_cluster(object);
    if is_missing && deleting {
        cluster = ctx.owners.missing_cluster(&ctx.management, &object.metadata, ClusterRef::of(&object.metadata).as_ref()).await?.map(Arc::new);
    } else if is_missing {
        return wait(ctx, object, "its Cluster is not there (yet)").await;
    }
    let why = paused(&object.metadata, cluster.as_deref().and_then(Cluster::paused_name));
    if let Some(why) = why.or_else(|| object.spec.paused.then(|| "spec.paused is true".to_owned())) {
        return report_status(ctx, object, &[paused_condition(Some(why))]).await;
    }
    let unreadable = observe::unreadable(ctx, object);
    if !unreadable.is_empty() {
        report_status(ctx, object, &[unread(&unreadable)]).await?;
        // Nothing triggers a pass when an unreadable machine is deleted.
        return Ok(Outcome::requeue_after(RECHECK));
    }
    machines::look_for_unseen(ctx, object).await?;
    if deleting {
        return reconcile_delete(ctx, object).await;
    }
    let (request, machine_pool) = match owner {
        // The pool is deleted next, and its machines with it.
        PoolOwner::MachinePool(pool) if pool.metadata.deletion_timestamp.is_some() => return Ok(Outcome::done()),
        PoolOwner::MachinePool(pool) => (PoolRequest::of_machine_pool(object, &pool), Some(pool)),
        PoolOwner::Unseen => return wait(ctx, object, "its MachinePool is not there (yet)").await,
        PoolOwner::None => {
            let message = "no MachinePool names it in spec.template.spec.infrastructureRef; for nodes without Cluster API give spec.cluster";
            return wait(ctx, object, message).await;
        }
        PoolOwner::Standalone(cluster) => {
            if let Some(outcome) = wait_for_nodes(ctx, object, &cluster).await? {
                return Ok(outcome);
            }
            (PoolRequest::standalone(object, cluster), None)
        }
    };
    if !has_finalizer {
        ctx.management.add_finalizer(object, FINALIZER).await?;
        return Ok(Outcome::now());
    }
    reconcile_normal(ctx, object, &request, machine_pool.as_deref()).await
}

/// Reconciles a pool with an owner: its template, its machines, one batch, the report.
async fn reconcile_normal(
    ctx: &Context,
    object: &WindowsNodePool,
    request: &PoolRequest,
    machine_pool: Option<&MachinePool>,
) -> Result<Outcome, ReconcileError> {
    if configs::fix(ctx, object).await? {
        return Ok(Outcome::now());
    }
    let template = match template::resolve(&ctx.caches, object, request) {
        Ok(template) => template,
        Err(none) => return report_status(ctx, object, &[none.condition]).await,
    };
    let found = observe::machines(ctx, object, &template.hash());
    if hand_over::hand_over(ctx, object, request, &found).await? {
        return Ok(Outcome::now());
    }
    if request.is_standalone() {
        machines::prune_removal_annotation(ctx, object, &found).await?;
    }
    let uid = object.uid().unwrap_or_default();
    let refusal = || ctx.memories.refusal(&uid, ctx.management.now());
    if refusal().is_none() {
        match ensure::ensure_configs_and_fields(ctx, object, request, &template, &found).await {
            // Reported below.
            Err(error) if error.is_refusal() && refusal().is_some() => {}
            done => {
                if done? {
                    return Ok(Outcome::now());
                }
            }
        }
    }
    if !(0..=MOST_MACHINES).contains(&request.replicas) {
        let message = format!("{}: spec.replicas is {}: ask for 0 to {MOST_MACHINES} machines", request.asked_by, request.replicas);
        return report_status(ctx, object, &[Desired::no(ConditionType::Ready, Reason::InvalidSpec, message)]).await;
    }
    let goal = Goal::of(&object.spec, request.replicas, request.min_ready_seconds);
    let members: Vec<Member> = found.iter().map(|machine| machine.member.clone()).collect();
    let failures = report::failures(object.status.as_ref(), &template.hash(), &members);
    let now = ctx.management.now();
    let mut decision = decide(&ObservedPool { goal: &goal, members: &members, domains: &request.failure_domains, failures }, now);
    let acted = match decision.step {
        PoolStep::Make(_) if refusal().is_some() => false,
        _ => match machines::carry_out(ctx, object, request, &template, &found, &decision.step).await {
            // Reported below.
            Err(error) if error.is_refusal() && matches!(decision.step, PoolStep::Make(_)) => false,
            acted => acted?,
        },
    };
    if let Some((why, left)) = refusal() {
        decision = refused(decision, why, Duration::try_from(left).unwrap_or_default());
    }
    if let Some(pool) = machine_pool.filter(|_| request.is_scaled_by_infrastructure) {
        machines::report_replicas(ctx, pool, members.len()).await?;
    }
    let listed = if request.is_standalone() { None } else { list_providers(ctx, object, &found).await? };
    let object = listed.as_ref().unwrap_or(object);
    let pods_per_node = ctx.caches.pods_per_node(ClusterRef::joined_by(object).as_ref());
    let capacity = capacity(&template.machine, &template.bootstrap.clone().unwrap_or_default(), pods_per_node);
    let served = report::Served { goal: &goal, members: &members, template: &template, capacity, failures, step: &decision.step };
    let followed = node_labels::follow(ctx, &template, &found).await;
    let mut conditions = decision.conditions;
    let followed = match followed {
        // The reported state of the Nodes stays until the cluster answers.
        Err(error) if error.is_pending() => return Err(error),
        Err(error) if error.is_refusal() => {
            conditions = nodes_refused(conditions, &error.to_string());
            Ok(false)
        }
        other => other,
    };
    let next = report::status(object, &conditions, Some(&served), now);
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    let followed = followed?;
    Ok(if acted || followed { Outcome::now() } else { Outcome::of(decision.requeue_after) })
}

/// Watches the Nodes of the cluster. The machines need their Nodes even while the pool itself does nothing.
async fn watch_nodes(ctx: &Context, cluster: &ClusterRef) {
    if let Err(error) = ctx.clusters.get_with_nodes(cluster).await {
        tracing::debug!(%cluster, %error, "the Nodes of the cluster are not watched yet");
    }
}

/// Waits until the Nodes of the cluster are known, before a standalone pool decides anything. `Some` if they are not known yet.
async fn wait_for_nodes(ctx: &Context, object: &WindowsNodePool, cluster: &ClusterRef) -> Result<Option<Outcome>, ReconcileError> {
    match ctx.clusters.get_with_nodes(cluster).await.and_then(|_| ctx.clusters.nodes().listed(cluster)) {
        Ok(true) => Ok(None),
        // The watch of the Nodes triggers the next pass.
        Ok(false) => Ok(Some(Outcome::requeue_after(RECHECK))),
        Err(error) => match fault(&error) {
            Some(fault) => {
                report_status(ctx, object, &[Desired::no(ConditionType::Ready, fault.reason(), error.to_string())]).await?;
                Ok(Some(Outcome::requeue_after(RECHECK)))
            }
            None => Err(error.into()),
        },
    }
}

/// Keeps `spec.providerIDList` up to date. Returns the pool if it was written. The ID of a machine that is being drained stays: without it,
/// Cluster API would delete the Node (`docs/design/cluster-api.md#pool-fields`).
async fn list_providers(ctx: &Context, object: &WindowsNodePool, found: &[PoolMachine]) -> Result<Option<WindowsNodePool>, ReconcileError> {
    let mut ids: Vec<String> = found.iter().filter_map(|machine| machine.object.spec.provider_id.clone()).collect();
    ids.sort();
    if ids == object.spec.provider_id_list {
        return Ok(None);
    }
    Ok(Some(ctx.management.merge_spec(object, json!({ "providerIDList": ids })).await?))
}

/// Deletes a pool: its machines first, each through its Machine, so that its Node is drained (`docs/design/cluster-api.md#pool-machines`).
async fn reconcile_delete(ctx: &Context, object: &WindowsNodePool) -> Result<Outcome, ReconcileError> {
    let found = observe::machines(ctx, object, "");
    // The configurations are deleted after the machines, and clean up the workload cluster while the Cluster and its kubeconfig still exist.
    let configs = configs::count(ctx, object);
    if found.is_empty() && configs == 0 {
        ctx.memories.forget(&object.uid().unwrap_or_default());
        forget_cluster(ctx, object).await;
        ctx.management.remove_finalizer(object, FINALIZER).await?;
        return Ok(Outcome::done());
    }
    machines::remove_all(ctx, object, &found).await?;
    let message = format!("{} machines and {configs} bootstrap configurations of theirs are being removed", found.len());
    let conditions = [
        Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message.clone()),
        Desired::no(ConditionType::Ready, Reason::Deleting, message),
    ];
    report_status(ctx, object, &conditions).await?;
    configs::fix(ctx, object).await?;
    // Machines without a Machine are checked again: nothing else triggers a pass when core gives up on them.
    Ok(Outcome::requeue_after(Duration::from_secs(5)))
}

/// Ends the watches of a cluster with its last pool.
async fn forget_cluster(ctx: &Context, object: &WindowsNodePool) {
    let Some(cluster) = ClusterRef::of_pool(object) else { return };
    let pools = ctx.caches.pools.all(&cluster.namespace);
    if !pools.iter().any(|other| other.uid() != object.uid() && ClusterRef::of_pool(other).as_ref() == Some(&cluster)) {
        ctx.clusters.forget(&cluster).await;
    }
}

/// A wait that ends automatically: reported only when it lasts.
async fn wait(ctx: &Context, object: &WindowsNodePool, message: &str) -> Result<Outcome, ReconcileError> {
    let wait = waiting((), &object.metadata, Reason::WaitingForClusterInfrastructureReady, message, ctx.management.now());
    if wait.requeue_after.is_some() { Ok(Outcome::of(wait.requeue_after)) } else { report_status(ctx, object, &wait.conditions).await }
}

#[cfg(test)]
mod tests;
