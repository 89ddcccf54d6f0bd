//! The pass for a WindowsBootstrapConfig.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, MANAGER, report_status, unusable};
use super::decide::outcome;
use super::decide::step::{BootstrapStep, decide};
use super::memory::SecretOwner;
use super::{clean_up, data, data_secret, machine_pool, observe, report, token};
use crate::api::bootstrap_config::{FINALIZER, WindowsBootstrapConfig};
use crate::api::capi;
use crate::api::cluster_ref::{ClusterRef, MADE_FOR_ANNOTATION};
use crate::api::name::ObjectKey;
use crate::domain::decision::Decision;
use crate::domain::owner::{TargetCluster, data_secret};
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::fault;
use crate::guards::Guard;

/// If the certificate requests of a cluster cannot be watched, the watch is retried after this time.
const WATCH: Duration = Duration::from_secs(15);

pub async fn reconcile(object: Arc<WindowsBootstrapConfig>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    if let Some(owner) = capi::owner(object.metadata.owner_references.as_ref(), capi::GROUP, "MachinePool") {
        return machine_pool::reconcile(ctx, object, owner).await;
    }
    let mut found = observe::observe(ctx, object);
    if let Some(cluster) = ctx.owners.missing_cluster(&ctx.management, &object.metadata, ClusterRef::of_config(object).as_ref()).await? {
        found.cluster = Some(TargetCluster::of_cluster(&cluster, None));
    }
    own_secret(ctx, object, &found).await?;
    if let Err(error) = observe::ask_for_endpoint(ctx, object, &mut found).await {
        return unusable(ctx, object, &error).await;
    }
    let observed = found.observed(object, ctx.clusters.certificates().issued(object));
    let decision = decide(&observed, ctx.management.now());
    let mut is_watched = true;
    if let (Some(target), BootstrapStep::Wait | BootstrapStep::ExtendToken { .. }) = (&found.cluster, &decision.step) {
        is_watched &= ctx.clusters.watch_certificates_for(&target.cluster, object).await;
        is_watched &= ctx.clusters.watch_serving_certificates_for(&target.cluster, object).await;
    }
    let outcome = carry_out(ctx, object, &found, &decision).await?;
    // The node may request a certificate in the time until the next pass.
    Ok(if is_watched { outcome } else { outcome.at_latest(WATCH) })
}

async fn carry_out(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    found: &observe::Found,
    decision: &Decision<BootstrapStep>,
) -> Result<Outcome, ReconcileError> {
    match &decision.step {
        BootstrapStep::Ignore => Ok(Outcome::done()),
        BootstrapStep::Wait => report_status(ctx, object, decision, None, None).await,
        BootstrapStep::Adopt => {
            let made_for = ClusterRef::of_config(object).map(|cluster| cluster.to_string());
            ctx.management.adopt(object, FINALIZER, json!({ MADE_FOR_ANNOTATION: made_for })).await?;
            Ok(Outcome::done())
        }
        BootstrapStep::Restore { secret } => restore(ctx, object, secret).await,
        BootstrapStep::MakeData { endpoint } => data::make(ctx, object, found, endpoint).await,
        BootstrapStep::ExtendToken { expires } => token::extend(ctx, object, found, *expires).await,
        BootstrapStep::DeleteToken { expired } => token::delete(ctx, object, found, *expired).await,
        BootstrapStep::CleanUp => reconcile_delete(ctx, object, found).await,
    }
}

/// Restores the owner reference of the Secret once the object has an owner again.
async fn own_secret(ctx: &Context, object: &WindowsBootstrapConfig, found: &observe::Found) -> Result<(), ReconcileError> {
    let (Some(secret), uid) = (data_secret(object), object.uid().unwrap_or_default()) else { return Ok(()) };
    if found.owner.is_none() {
        ctx.secret_owners.keep(uid, SecretOwner::Doubted);
    } else if ctx.secret_owners.is(&uid, SecretOwner::Doubted) {
        data_secret::own(ctx, object, secret).await?;
    }
    Ok(())
}

/// The Machine has its data from before a move or a restore. The token in the data is reported too, so that everything created with that
/// token is found when the configuration is deleted.
async fn restore(ctx: &Context, object: &WindowsBootstrapConfig, secret: &str) -> Result<Outcome, ReconcileError> {
    let mut next = report::status(object, &outcome::restored().conditions, Some(secret), None, ctx.management.now());
    if let Some((id, _)) = data_secret::token(ctx, object).await?
        // A Secret that a user created may hold anything.
        && id.len() == 6
    {
        next.token_id = Some(id);
    }
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

/// Deletes what the machine has left in the workload cluster, and then releases the configuration.
async fn reconcile_delete(ctx: &Context, object: &WindowsBootstrapConfig, found: &observe::Found) -> Result<Outcome, ReconcileError> {
    let uid = object.uid().unwrap_or_default();
    ctx.made_secrets.take(&ObjectKey::of(&object.metadata));
    ctx.unreported.take(&uid);
    ctx.known_tokens.take(&uid);
    if let Err(error) = clean_up::clean_up(ctx, object, found).await
        && Guard::TokenBeforeFinalizer.holds()
        && !outcome::may_leave_token(object, fault(&error), ctx.management.now())
    {
        if let Some(cluster) = ClusterRef::of_config(object) {
            ctx.clusters.note_error(&cluster, &error).await;
        }
        if let Some(fault) = fault(&error) {
            report_status(ctx, object, &outcome::held(object, fault, &error.to_string()), None, None).await?;
        }
        return Err(ReconcileError::Workload(error));
    }
    if let Some(secret) = data_secret(object)
        && !ctx.secret_owners.is(&uid, SecretOwner::Named)
    {
        data_secret::own(ctx, object, secret).await?;
    }
    ctx.management.remove_finalizer(object, FINALIZER).await?;
    ctx.secret_owners.take(&uid);
    Ok(Outcome::done())
}

#[cfg(test)]
mod tests;
