//! WindowsBootstrapConfig: observe, decide ([`crate::lifecycle::bootstrap_config`]), act, report.
//!
//! A pass that makes the data makes up to three objects, in this order: the rights of joining nodes, the token, the bootstrap Secret;
//! and then it reports. A pass that starts after a crash finds each of them.

mod clean_up;
mod data;
mod data_secret;
mod facts;
mod machine_pool;
mod observe;
mod secret_values;
mod token;
mod triggers;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use self::data_secret::SecretOwner;
pub use self::data_secret::{KnownTokens, SecretOwners, Unreported};
pub use self::triggers::triggers;
use super::runtime::caches::Caches;
use super::runtime::made_secrets::MadeSecrets;
use super::runtime::management::{Management, NewTokenSecret};
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::owners::Owners;
use super::runtime::workload_clusters::{WorkloadClusters, fault};
use crate::api::bootstrap_config::{FINALIZER, WindowsBootstrapConfig};
use crate::api::capi;
use crate::api::cluster_ref::{ClusterRef, MADE_FOR_ANNOTATION};
use crate::api::name::ObjectKey;
use crate::cluster::workload::WorkloadError;
use crate::guards::Guard;
use crate::lifecycle::Decision;
use crate::lifecycle::bootstrap_config::outcome::{self, DataProblem};
use crate::lifecycle::bootstrap_config::report::{self, Token};
use crate::lifecycle::bootstrap_config::{BootstrapStep, decide};
use crate::lifecycle::owner::{TargetCluster, data_secret};

const MANAGER: &str = "capw-windowsbootstrapconfig";
/// A cluster whose certificate requests cannot be watched is tried again after this time.
const WATCH: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub clusters: WorkloadClusters,
    pub new_token_secret: NewTokenSecret,
    pub made_secrets: Arc<MadeSecrets>,
    pub unreported: Arc<Unreported>,
    pub known_tokens: Arc<KnownTokens>,
    pub secret_owners: Arc<SecretOwners>,
}

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
    // Its node may ask for a certificate meanwhile.
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

/// When the object has an owner again, so has its Secret.
async fn own_secret(ctx: &Context, object: &WindowsBootstrapConfig, found: &observe::Found) -> Result<(), ReconcileError> {
    let (Some(secret), uid) = (data_secret(object), object.uid().unwrap_or_default()) else { return Ok(()) };
    if found.owner.is_none() {
        ctx.secret_owners.keep(uid, SecretOwner::Doubted);
    } else if ctx.secret_owners.is(&uid, SecretOwner::Doubted) {
        data_secret::own(ctx, object, secret).await?;
    }
    Ok(())
}

/// The Machine has its data from before a move or a restore. Which token is in it is reported too, so that what was made with that
/// token is found when the configuration goes.
async fn restore(ctx: &Context, object: &WindowsBootstrapConfig, secret: &str) -> Result<Outcome, ReconcileError> {
    let mut next = report::status(object, &outcome::restored().conditions, Some(secret), None, ctx.management.now());
    if let Some((id, _)) = data_secret::token(ctx, object).await?
        // A Secret that a user made may hold anything.
        && id.len() == 6
    {
        next.token_id = Some(id);
    }
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}

/// The configuration goes, and with it what the machine has left in the workload cluster.
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

/// Reports that the workload cluster cannot be used; what passes by itself is retried instead.
async fn unusable(ctx: &Context, object: &WindowsBootstrapConfig, error: &WorkloadError) -> Result<Outcome, ReconcileError> {
    let Some(fault) = fault(error) else { return Err(ReconcileError::Workload(error.clone())) };
    report_status(ctx, object, &outcome::not_made(DataProblem::Cluster(fault), error.to_string()), None, None).await
}

async fn report_status<S>(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    decision: &Decision<S>,
    secret: Option<&str>,
    token: Option<Token>,
) -> Result<Outcome, ReconcileError> {
    let next = report::status(object, &decision.conditions, secret, token, ctx.management.now());
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(decision.requeue_after))
}

#[cfg(test)]
mod tests;
