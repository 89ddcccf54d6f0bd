//! WindowsNodePool: observe → decide → act → report. The decisions are in [`lifecycle::pool`].

mod act;
mod hand_over;
mod marks;
mod memory;
mod observe;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::json;

use super::Context;
use super::bootstrap::reason_of;
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use crate::api::capi::MachinePool;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::pool::{FINALIZER, Joins, MOST_MACHINES, WindowsNodePool};
use crate::lifecycle::pool::{Goal, Member, Situation, Step, decide, report as reports};
use crate::lifecycle::{self, paused, paused_condition, standalone};

use self::observe::{Owner, Seen};

pub use self::memory::Memories;

const MANAGER: &str = "capw-windowsnodepool";
/// What a person can mend outside the cluster is looked at again after that time.
const MEND: Duration = Duration::from_secs(10);
/// A thousand machines change a hundred times a second while they come up: their pool looks at all of them at once.
const REST: SignedDuration = SignedDuration::from_millis(300);

pub async fn reconcile(object: Arc<WindowsNodePool>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    if let Some(left) = ctx.pools.rests(&object.uid().unwrap_or_default(), REST, ctx.now()) {
        return Ok(Outcome::look_again(Duration::try_from(left).unwrap_or_default()));
    }
    let owner = observe::owner(ctx, object);
    let cluster = observe::cluster(ctx, object).filter(|_| Joins::of(object).is_none());
    let ours = object.finalizers().iter().any(|f| f == FINALIZER);
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting && !ours {
        return Ok(Outcome::done());
    }
    if let Owner::Itself(joins) = &owner {
        follow(ctx, object, joins).await;
    }
    if let Some(why) = paused(&object.metadata, cluster.as_deref()).or_else(|| object.spec.paused.then(|| "spec.paused is true".to_owned())) {
        return say(ctx, object, &[paused_condition(Some(why))]).await;
    }
    act::look_for_unseen(ctx, object).await?;
    if deleting {
        return leave(ctx, object).await;
    }
    let pool = match owner {
        // The pool goes next, and its machines with it.
        Owner::MachinePool(pool) if pool.metadata.deletion_timestamp.is_some() => return Ok(Outcome::done()),
        Owner::MachinePool(pool) => pool,
        Owner::Unseen => return waiting(ctx, object, "its MachinePool is not there (yet)").await,
        Owner::None => {
            let message = "no MachinePool names it in spec.template.spec.infrastructureRef; for nodes without Cluster API give spec.cluster";
            return waiting(ctx, object, message).await;
        }
        Owner::Itself(joins) => {
            if let Some(outcome) = meet(ctx, object, &joins).await? {
                return Ok(outcome);
            }
            Arc::new(standalone::machine_pool(object))
        }
    };
    if !ours {
        if let Some(written) = ctx.cluster.add_finalizer(object, FINALIZER).await? {
            ctx.written.note(&written);
        }
        return Ok(Outcome::now());
    }
    work(ctx, object, &pool).await
}

/// Its machines need to know their Nodes, also while the pool itself does nothing.
async fn follow(ctx: &Context, object: &WindowsNodePool, joins: &str) {
    if let Err(error) = ctx.joined(&object.namespace().unwrap_or_default(), joins).await {
        tracing::debug!(joins, %error, "the Nodes of the cluster are not followed yet");
    }
}

/// Before a pool that stands alone decides anything, the Nodes of its cluster must be known. `Some`: they are not yet.
async fn meet(ctx: &Context, object: &WindowsNodePool, joins: &str) -> Result<Option<Outcome>, ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    match ctx.joined(&namespace, joins).await {
        Ok(_) if ctx.nodes.are_known(&namespace, joins) => Ok(None),
        // Their watch wakes the pool.
        Ok(_) => Ok(Some(Outcome::look_again(MEND))),
        Err(error) => match reason_of(&error) {
            Some(why) => {
                say(ctx, object, &[Desired::no(ConditionType::Ready, why, error.to_string())]).await?;
                Ok(Some(Outcome::look_again(MEND)))
            }
            None => Err(error.into()),
        },
    }
}

/// A pool that is served: its template, its machines, one batch, the report.
async fn work(ctx: &Context, object: &WindowsNodePool, pool: &MachinePool) -> Result<Outcome, ReconcileError> {
    let template = match observe::template(ctx, object, pool) {
        Ok(template) => template,
        Err(missing) => return say(ctx, object, &[Desired::no(ConditionType::Ready, missing.reason, missing.message)]).await,
    };
    let seen = observe::machines(ctx, object, &template.hash());
    if hand_over::hand_over(ctx, object, pool, &seen).await? {
        return Ok(Outcome::now());
    }
    if Joins::of(object).is_some() {
        act::strike_out(ctx, object, &seen).await?;
    }
    let uid = object.uid().unwrap_or_default();
    let refused = || ctx.pools.refusal(&uid, ctx.now());
    if refused().is_none() {
        match act::furnish(ctx, object, &template, &seen).await {
            // Told below.
            Err(error) if error.is_refusal() && refused().is_some() => {}
            done => {
                if done? {
                    return Ok(Outcome::now());
                }
            }
        }
    }
    let elsewhere = pool.is_scaled_by_infrastructure();
    let replicas = if elsewhere { object.spec.replicas } else { pool.spec.replicas.unwrap_or(1) };
    if !(0..=MOST_MACHINES).contains(&replicas) {
        let message = format!("MachinePool {}: spec.replicas is {replicas}: ask for 0 to {MOST_MACHINES} machines", pool.name_any());
        return say(ctx, object, &[Desired::no(ConditionType::Ready, Reason::InvalidSpec, message)]).await;
    }
    let goal = Goal::of(&object.spec, replicas, pool.spec.template.spec.min_ready_seconds.unwrap_or(object.spec.min_ready_seconds));
    let domains = if object.spec.failure_domains.is_empty() { &pool.spec.failure_domains } else { &object.spec.failure_domains };
    let members: Vec<Member> = seen.iter().map(|s| s.member.clone()).collect();
    let failures = reports::failures(object.status.as_ref(), &template.hash(), &members);
    let now = ctx.now();
    let mut decision = decide(&Situation { goal: &goal, members: &members, domains, failures }, now);
    let acted = match decision.step {
        Step::Make(_) if refused().is_some() => false,
        _ => match act::carry_out(ctx, object, pool, &template, &seen, &decision.step).await {
            // Told below.
            Err(error) if error.is_refusal() && matches!(decision.step, Step::Make(_)) => false,
            acted => acted?,
        },
    };
    if let Some((why, left)) = refused() {
        decision.conditions.retain(|said| said.type_ != ConditionType::Ready);
        decision.conditions.push(Desired::no(ConditionType::Ready, Reason::MachinesRefused, why));
        decision.look_again = Some(Duration::try_from(left).unwrap_or_default());
    }
    if elsewhere {
        act::tell_replicas(ctx, pool, members.len()).await?;
    }
    let object = &if Joins::of(object).is_some() { object.clone() } else { list_providers(ctx, object, &seen).await? };
    let known = reports::Seen { goal: &goal, members: &members, template: &template, failures, step: &decision.step };
    let next = reports::status(object, &decision.conditions, Some(&known), now);
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    let marked = marks::follow(ctx, object, &template, &seen).await?;
    Ok(if acted || marked { Outcome::now() } else { Outcome::of(decision.look_again) })
}

/// Keeps `spec.providerIDList` true. The ID of a machine that is being drained stays: without it, Cluster API would delete the Node
/// (`capi-contract.md` §4.1).
async fn list_providers(ctx: &Context, object: &WindowsNodePool, seen: &[Seen]) -> Result<WindowsNodePool, ReconcileError> {
    let mut ids: Vec<String> = seen.iter().filter_map(|s| s.object.spec.provider_id.clone()).collect();
    ids.sort();
    if ids == object.spec.provider_id_list {
        return Ok(object.clone());
    }
    let written = ctx.cluster.merge_spec(object, json!({ "providerIDList": ids })).await?;
    ctx.written.note(&written);
    Ok(written)
}

/// The pool goes: its machines first, each by its Machine, so that it is drained (`capi-contract.md` §4.3).
async fn leave(ctx: &Context, object: &WindowsNodePool) -> Result<Outcome, ReconcileError> {
    let seen = observe::machines(ctx, object, "");
    // Their configurations follow them, and clean up the workload cluster while the Cluster and its kubeconfig are still there.
    let configs = observe::configs_left(ctx, object);
    if seen.is_empty() && configs == 0 {
        ctx.pools.forget(&object.uid().unwrap_or_default());
        forget_cluster(ctx, object).await;
        if let Some(written) = ctx.cluster.remove_finalizer(object, FINALIZER).await? {
            ctx.written.note(&written);
        }
        return Ok(Outcome::done());
    }
    act::dismiss(ctx, object, &seen).await?;
    let message = format!("{} machines and {configs} bootstrap configurations of theirs are being removed", seen.len());
    let said = [
        Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message.clone()),
        Desired::no(ConditionType::Ready, Reason::Deleting, message),
    ];
    // Machines without a Machine are looked at again: nothing else wakes the pool when core gives up on them.
    let outcome = say(ctx, object, &said).await?;
    Ok(if outcome == Outcome::done() { Outcome::look_again(Duration::from_secs(5)) } else { outcome })
}

/// The last pool of a cluster takes the watches of it along.
async fn forget_cluster(ctx: &Context, object: &WindowsNodePool) {
    let (namespace, joins) = (object.namespace().unwrap_or_default(), Joins::of(object));
    let others = ctx.stores.pools.all(&namespace).iter().any(|p| p.uid() != object.uid() && Joins::of(p) == joins);
    if let Some(joins) = joins.filter(|_| !others) {
        ctx.forget(&namespace, &joins.to_string()).await;
    }
}

/// A wait that ends by itself: reported only when it lasts.
async fn waiting(ctx: &Context, object: &WindowsNodePool, message: &str) -> Result<Outcome, ReconcileError> {
    let wait = lifecycle::waiting((), &object.metadata, Reason::WaitingForClusterInfrastructureReady, message, ctx.now());
    if wait.look_again.is_some() { Ok(Outcome::of(wait.look_again)) } else { say(ctx, object, &wait.conditions).await }
}

async fn say(ctx: &Context, object: &WindowsNodePool, said: &[Desired]) -> Result<Outcome, ReconcileError> {
    let next = reports::status(object, said, None, ctx.now());
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}
