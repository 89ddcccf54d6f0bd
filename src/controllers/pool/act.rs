//! What is done to the machines of a pool: made, furnished with a bootstrap configuration, kept in line, removed.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::Context;
use super::observe::Seen;
use crate::api::bootstrap_config::{WindowsBootstrapConfig, WindowsBootstrapConfigSpec};
use crate::api::capi::{self, CLUSTER_NAME_LABEL, MACHINE_FINALIZER, Machine, MachinePool, POOL_NAME_LABEL};
use crate::api::machine::{LocalReference, WindowsMachine, WindowsMachineSpec};
use crate::api::name::{ProviderId, base36};
use crate::api::pool::{JOINS_ANNOTATION, Joins, POOL_LABEL, REMOVE_ANNOTATION, TEMPLATE_LABEL, WindowsNodePool, joins};
use crate::cluster::{ApiError, Creation};
use crate::controllers::runtime::controller::ReconcileError;
use crate::lifecycle::claim::VERSION_ANNOTATION;
use crate::lifecycle::machine::{host_name, vm_uuid};
use crate::lifecycle::pool::template::Template;
use crate::lifecycle::pool::{Step, Why, in_place};

/// Requests of one batch at the same time.
const AT_ONCE: usize = 8;
/// Characters of the pool's name in the names of its machines: with the rest they are as long as Windows allows.
const PREFIX: usize = 9;

/// Carries out a step; `true` when something was done.
pub async fn carry_out(
    ctx: &Context,
    object: &WindowsNodePool,
    pool: &MachinePool,
    template: &Template,
    seen: &[Seen],
    step: &Step,
) -> Result<bool, ReconcileError> {
    match step {
        Step::Wait => Ok(false),
        Step::Make(places) => {
            let mut made = Vec::new();
            for (nth, place) in places.iter().enumerate() {
                made.push(make(ctx, object, pool, template, nth, place.as_deref()));
            }
            all(made).await?;
            tracing::info!(machines = places.len(), "made");
            Ok(true)
        }
        Step::Remove { names, why } => {
            if *why == Why::TooMany && Joins::of(object).is_none() {
                refuse_if_marks_are_news(ctx, pool, seen).await?;
            }
            let mut removed = Vec::new();
            for one in seen {
                if names.contains(&one.member.name) {
                    removed.push(remove(ctx, object, one, *why));
                }
            }
            Ok(all(removed).await?.into_iter().any(|done| done))
        }
    }
}

/// Asks for machines that were made and that a watch which is down does not show: they would be made twice.
pub async fn look_for_unseen(ctx: &Context, object: &WindowsNodePool) -> Result<(), ReconcileError> {
    let pool = object.uid().unwrap_or_default();
    let overdue = ctx.pools.overdue(&pool, ctx.now());
    all(overdue.iter().map(|made| look_for(ctx, &pool, made)).collect()).await.map(drop)
}

async fn look_for(ctx: &Context, pool: &str, made: &WindowsMachine) -> Result<(), ReconcileError> {
    let found: Option<WindowsMachine> = ctx.cluster.get(&made.namespace().unwrap_or_default(), &made.name_any()).await?;
    match found.filter(|found| found.uid() == made.uid()) {
        Some(found) => ctx.pools.made(pool, found, ctx.now()),
        None => ctx.pools.seen(&made.uid().unwrap_or_default()),
    }
    Ok(())
}

/// cluster-autoscaler marks a Machine, then lowers the number in the MachinePool: those are two watches, and the first may be behind.
async fn refuse_if_marks_are_news(ctx: &Context, pool: &MachinePool, seen: &[Seen]) -> Result<(), ReconcileError> {
    let labels = core_labels(pool).map(|(key, value)| format!("{key}={value}")).join(",");
    let now: Vec<Machine> = ctx.cluster.list(&pool.namespace().unwrap_or_default(), Some(&labels)).await?;
    let is_marked = |machine: &Machine| machine.annotations().contains_key(capi::DELETE_ANNOTATION);
    let of = |machine: &Machine| seen.iter().find(|s| s.object.name_any() == machine.name_any());
    match now.iter().find(|machine| of(machine).is_some_and(|s| is_marked(machine) != s.machine.as_deref().is_some_and(is_marked))) {
        Some(machine) => {
            Err(ApiError::Conflict(format!("the annotation {} of Machine {} has just changed", capi::DELETE_ANNOTATION, machine.name_any())).into())
        }
        None => Ok(()),
    }
}

/// Runs calls side by side, all of them; the first error, if there is one.
pub(super) async fn all<T>(calls: Vec<impl Future<Output = Result<T, ReconcileError>>>) -> Result<Vec<T>, ReconcileError> {
    let done: Vec<Result<T, ReconcileError>> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    done.into_iter().collect()
}

/// One machine. Core makes its Machine when it sees it (`capi-contract.md` §4.3).
async fn make(
    ctx: &Context,
    object: &WindowsNodePool,
    pool: &MachinePool,
    template: &Template,
    nth: usize,
    place: Option<&str>,
) -> Result<(), ReconcileError> {
    let uid = object.uid().unwrap_or_default();
    let name = ctx.pools.take_unanswered(&uid).unwrap_or_else(|| name(object, &format!("{uid} {} {nth}", ctx.now())));
    let metadata = object.spec.template.metadata.clone().unwrap_or_default();
    let mut annotations: BTreeMap<String, String> = in_place::notes(&metadata).into_iter().chain(metadata.annotations).collect();
    annotations.extend(template.version.clone().map(|version| (VERSION_ANNOTATION.to_owned(), version)));
    annotations.extend(Joins::of(object).map(|joins| (JOINS_ANNOTATION.to_owned(), joins.to_string())));
    let hypervisor_ref = place.map(|name| LocalReference { name: name.to_owned() }).or_else(|| template.machine.hypervisor_ref.clone());
    let machine = WindowsMachine {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: object.namespace(),
            labels: Some(metadata.labels.into_iter().chain(labels(object, pool, template)).collect()),
            annotations: Some(annotations),
            owner_references: Some(vec![owner_reference(object)]),
            ..ObjectMeta::default()
        },
        spec: WindowsMachineSpec { hypervisor_ref, provider_id: None, ..template.machine.clone() },
        status: None,
    };
    match heard(ctx, object, &name, ctx.cluster.create_if_absent(&machine).await) {
        Ok(Creation::Made(made)) => ctx.pools.made(&uid, made, ctx.now()),
        // An earlier try had no answer: this is what it made.
        Ok(Creation::Existing(found)) if found.owner_references().iter().any(|owner| owner.uid == uid) => ctx.pools.made(&uid, found, ctx.now()),
        // Somebody has that name: the next pass finds another one.
        Ok(Creation::Existing(_)) => return Err(ApiError::AlreadyExists(format!("WindowsMachine {name} is there already")).into()),
        Err(error) => {
            if matches!(error, ApiError::Unreachable(_) | ApiError::Other(_)) {
                ctx.pools.no_answer(&uid, name);
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// A refusal is remembered, without the name that is another one each time.
fn heard<T>(ctx: &Context, object: &WindowsNodePool, name: &str, answer: Result<T, ApiError>) -> Result<T, ApiError> {
    if let Err(error) = &answer
        && error.is_refusal()
    {
        ctx.pools.refused(&object.uid().unwrap_or_default(), error.to_string().replace(name, "…"), ctx.now());
    }
    answer
}

/// The labels by which core finds a machine of its pool.
pub fn core_labels(pool: &MachinePool) -> [(&'static str, String); 2] {
    [(CLUSTER_NAME_LABEL, pool.spec.cluster_name.clone()), (POOL_NAME_LABEL, capi::label_value(&pool.name_any()))]
}

/// The labels by which core and the pool find a machine.
fn labels(object: &WindowsNodePool, pool: &MachinePool, template: &Template) -> BTreeMap<String, String> {
    let own = [(POOL_LABEL, capi::label_value(&object.name_any())), (TEMPLATE_LABEL, template.hash())];
    let of_core = core_labels(pool).into_iter().filter(|_| Joins::of(object).is_none());
    own.into_iter().chain(of_core).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The controller of the machine, unless that is its Machine (`capi-contract.md` §4.3).
pub fn owner_reference(object: &WindowsNodePool) -> OwnerReference {
    OwnerReference {
        api_version: WindowsNodePool::api_version(&()).into_owned(),
        kind: WindowsNodePool::kind(&()).into_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: Joins::of(object).map(|_| true),
        block_owner_deletion: Joins::of(object).map(|_| true),
    }
}

/// The beginning of the pool's name and five characters that depend on `seed`: a host name that Windows accepts.
fn name(object: &WindowsNodePool, seed: &str) -> String {
    let prefix: String = object.name_any().chars().map(|c| if c == '.' { '-' } else { c }).take(PREFIX).collect();
    format!("{}-{}", prefix.trim_end_matches('-'), base36(seed.as_bytes(), 5))
}

/// Removes a machine by its Machine, which drains it first. `false`: core does not look after that yet, so nothing is removed. A machine of a
/// pool that stands alone drains itself.
async fn remove(ctx: &Context, object: &WindowsNodePool, seen: &Seen, why: Why) -> Result<bool, ReconcileError> {
    if Joins::of(object).is_some() {
        return remove_own(ctx, object, seen, why).await.map(|()| true);
    }
    // Before core looks after it, a Machine would vanish at once and leave its WindowsMachine, for which core makes another.
    let Some(machine) = seen.machine.as_ref().filter(|m| m.finalizers().iter().any(|f| f == MACHINE_FINALIZER)) else { return Ok(false) };
    let (namespace, name, uid) = (machine.namespace().unwrap_or_default(), machine.name_any(), machine.uid().unwrap_or_default());
    ctx.cluster.delete_exact::<Machine>(&namespace, &name, &uid, None).await?;
    told(ctx, object, seen, &name, &uid, why);
    Ok(true)
}

async fn remove_own(ctx: &Context, object: &WindowsNodePool, seen: &Seen, why: Why) -> Result<(), ReconcileError> {
    let machine = &*seen.object;
    let (namespace, name, uid) = (machine.namespace().unwrap_or_default(), machine.name_any(), machine.uid().unwrap_or_default());
    if why == Why::Failed
        && seen.member.failed_to_start()
        && let Some(joins) = joins(&machine.metadata)
    {
        refuse_if_it_has_joined(ctx, machine, &namespace, joins).await?;
    }
    ctx.cluster.delete_exact::<WindowsMachine>(&namespace, &name, &uid, None).await?;
    told(ctx, object, seen, &name, &uid, why);
    Ok(())
}

/// That a machine has not joined may be old news, if the watch of the Nodes is behind.
async fn refuse_if_it_has_joined(ctx: &Context, machine: &WindowsMachine, namespace: &str, joins: &str) -> Result<(), ReconcileError> {
    let Ok(host_name) = host_name(machine) else { return Ok(()) };
    let node = ctx.joined(namespace, joins).await?.node(host_name.as_str()).await?;
    let id = node.and_then(|n| n.spec?.provider_id).and_then(|id| ProviderId::parse(&id).ok());
    if id.is_some_and(|id| id.vm == vm_uuid(machine)) {
        return Err(ApiError::Conflict(format!("Node {host_name} is there by now")).into());
    }
    Ok(())
}

fn told(ctx: &Context, object: &WindowsNodePool, seen: &Seen, name: &str, uid: &str, why: Why) {
    ctx.pools.removed(&object.uid().unwrap_or_default(), uid, ctx.now());
    let failed = seen.member.failed.as_ref().map(|f| f.why.as_str()).unwrap_or_default();
    tracing::info!(machine = name, why = ?why, failed, "removed");
}

/// The whole pool goes.
pub async fn dismiss(ctx: &Context, object: &WindowsNodePool, seen: &[Seen]) -> Result<(), ReconcileError> {
    let mut calls = Vec::new();
    for one in seen {
        calls.push(dismiss_one(ctx, object, one));
    }
    all(calls).await.map(drop)
}

async fn dismiss_one(ctx: &Context, object: &WindowsNodePool, seen: &Seen) -> Result<(), ReconcileError> {
    if seen.member.is_leaving() && (seen.machine.is_some() || seen.object.metadata.deletion_timestamp.is_some()) {
        return Ok(());
    }
    if remove(ctx, object, seen, Why::TooMany).await? || seen.machine.is_some() {
        return Ok(());
    }
    // Core makes no Machine any more for what is left without one.
    let (namespace, name, uid) = (seen.object.namespace().unwrap_or_default(), seen.object.name_any(), seen.object.uid().unwrap_or_default());
    ctx.cluster.delete_exact::<WindowsMachine>(&namespace, &name, &uid, None).await?;
    Ok(())
}

/// A bootstrap configuration for each machine that has none, and what changes in place; `true` when something was done.
pub async fn furnish(ctx: &Context, object: &WindowsNodePool, template: &Template, seen: &[Seen]) -> Result<bool, ReconcileError> {
    let shown = seen.iter().filter(|s| s.config.is_some()).filter_map(|s| s.object.uid());
    let unseen = ctx.pools.unseen_configs(&object.uid().unwrap_or_default(), shown, ctx.now());
    let mut calls = Vec::new();
    for one in seen.iter().filter(|s| s.object.metadata.deletion_timestamp.is_none()) {
        let lacks = one.config.is_none() && one.object.uid().is_none_or(|uid| !unseen.contains(&uid));
        let spec = template.bootstrap.as_ref().filter(|_| lacks && one.member.up_to_date);
        let patch = change(object, template, one);
        if spec.is_some() || patch.is_some() {
            calls.push(furnish_one(ctx, object, one, spec, patch));
        }
    }
    Ok(!all(calls).await?.is_empty())
}

async fn furnish_one(
    ctx: &Context,
    object: &WindowsNodePool,
    seen: &Seen,
    spec: Option<&WindowsBootstrapConfigSpec>,
    patch: Option<Value>,
) -> Result<(), ReconcileError> {
    if let Some(spec) = spec {
        configure(ctx, object, &seen.object, spec).await?;
    }
    if let Some(patch) = patch {
        ctx.written.note(&ctx.cluster.merge(&*seen.object, patch).await?);
    }
    Ok(())
}

/// The configuration of one machine: it has the machine's name, belongs to it, and so its token is bound to it.
async fn configure(
    ctx: &Context,
    object: &WindowsNodePool,
    machine: &WindowsMachine,
    spec: &WindowsBootstrapConfigSpec,
) -> Result<(), ReconcileError> {
    let cluster = capi::cluster_name(machine.metadata.labels.as_ref()).map(|name| (CLUSTER_NAME_LABEL.to_owned(), name.to_owned()));
    let pool = (POOL_LABEL.to_owned(), capi::label_value(&object.name_any()));
    let joins = joins(&machine.metadata).map(|joins| [(JOINS_ANNOTATION.to_owned(), joins.to_owned())].into());
    let config = WindowsBootstrapConfig {
        metadata: ObjectMeta {
            name: Some(machine.name_any()),
            namespace: machine.namespace(),
            labels: Some(cluster.into_iter().chain([pool]).collect()),
            annotations: joins,
            owner_references: machine.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
        status: None,
    };
    match heard(ctx, object, &config.name_any(), ctx.cluster.create_if_absent(&config).await)? {
        Creation::Existing(found) if !found.owner_references().iter().any(|o| Some(&o.uid) == machine.metadata.uid.as_ref()) => {
            let name = found.name_any();
            let message = format!("WindowsBootstrapConfig {name} is there and does not belong to the machine of that name: remove it");
            Err(ReconcileError::Invalid(message))
        }
        _ => {
            let (pool, machine) = (object.uid().unwrap_or_default(), machine.uid().unwrap_or_default());
            ctx.pools.configured(&pool, &machine, ctx.now());
            Ok(())
        }
    }
}

/// What of the template is written into a machine that is there: labels, annotations and the join deadline.
fn change(object: &WindowsNodePool, template: &Template, seen: &Seen) -> Option<Value> {
    // Core still edits an object that it has not made its own (`capi-contract.md` §1.7).
    if Joins::of(object).is_none() {
        capi::machine_owner(seen.object.metadata.owner_references.as_ref())?;
    }
    let wanted = object.spec.template.metadata.clone().unwrap_or_default();
    let deadline = template.machine.join_deadline_seconds;
    let same = deadline == seen.object.spec.join_deadline_seconds || !seen.member.up_to_date;
    let metadata = in_place::metadata(&wanted, &seen.object.metadata).map(|changes| ("metadata", changes));
    let spec = (!same).then(|| ("spec", json!({ "joinDeadlineSeconds": deadline })));
    let patch: Map<String, Value> = metadata.into_iter().chain(spec).map(|(field, changes)| (field.to_owned(), changes)).collect();
    (!patch.is_empty()).then(|| patch.into())
}

/// Says in the MachinePool how many machines there are, as it follows the pool and not the pool it (`capi-contract.md` §4.4).
pub async fn tell_replicas(ctx: &Context, pool: &MachinePool, machines: usize) -> Result<(), ReconcileError> {
    let machines = i32::try_from(machines).unwrap_or(i32::MAX);
    if pool.spec.replicas != Some(machines) {
        ctx.cluster.merge_spec(pool, json!({ "replicas": machines })).await?;
    }
    Ok(())
}

/// Takes the names of machines that are gone from the annotation by which they were named.
pub async fn strike_out(ctx: &Context, object: &WindowsNodePool, seen: &[Seen]) -> Result<(), ReconcileError> {
    let named = object.named_for_removal();
    let left: Vec<&str> = named.iter().map(String::as_str).filter(|name| seen.iter().any(|s| s.member.name == *name)).collect();
    if left.len() == named.len() {
        return Ok(());
    }
    let listed = if left.is_empty() { Value::Null } else { json!(left.join(",")) };
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version(), "annotations": { REMOVE_ANNOTATION: listed } } });
    ctx.written.note(&ctx.cluster.merge(object, patch).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::HostName;

    #[test]
    fn names_of_machines_are_host_names() {
        for pool in ["windows", "a", "windows-server-2022-large", "my.pool.example.com", "pool1-.x"] {
            let mut object = WindowsNodePool::new(pool, Default::default());
            object.metadata.namespace = Some("lab".into());
            let name = name(&object, "seed");
            assert!(HostName::parse(&name).is_ok(), "{name}");
        }
    }
}
