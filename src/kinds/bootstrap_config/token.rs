//! The bootstrap token of a configuration after its creation: extended while its machine may join, then deleted.

use jiff::Timestamp;
use kube::ResourceExt;

use super::context::{Context, report_status};
use super::data_secret;
use super::decide::outcome::{token_expired, token_extended, token_used};
use super::decide::step::token_id;
use super::observe::Found;
use super::report::Token;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::name::ObjectKey;
use crate::domain::owner::TargetCluster;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::guards::Guard;
use crate::kube_api::error::ApiError;
use crate::kube_api::token;
use crate::kube_api::workload::{Workload, WorkloadError};

pub async fn extend(ctx: &Context, object: &WindowsBootstrapConfig, found: &Found, expires: Timestamp) -> Result<Outcome, ReconcileError> {
    let Some(target) = &found.cluster else { return Ok(Outcome::done()) };
    if let Err(error) = extend_in(ctx, object, target, expires).await {
        ctx.clusters.note_error(&target.cluster, &error).await;
        return Err(ReconcileError::Workload(error));
    }
    let created = object.status.as_ref().and_then(|s| s.token_created_at.as_ref()).map_or(ctx.management.now(), |t| t.0);
    report_status(
        ctx,
        object,
        &token_extended(),
        None,
        Some(Token { id: token_id(object), created, expires, cluster_uid: ctx.clusters.uid(&target.cluster) }),
    )
    .await
}

async fn extend_in(ctx: &Context, object: &WindowsBootstrapConfig, target: &TargetCluster, expires: Timestamp) -> Result<(), WorkloadError> {
    let workload = ctx.clusters.get(&target.cluster).await?;
    match token::get(&workload, &token_id(object)).await? {
        Some(existing) if existing.owner.as_deref() == Some(&owner_of(object).id) => token::extend(&workload, &existing, expires).await.map(drop),
        Some(_) => Ok(()),
        // The token expired while CAPW was down, and was deleted. The guest still has it, so the same token is recreated.
        None => match data_secret::token(ctx, object).await.map_err(WorkloadError::Management)? {
            Some((_, secret)) => token::create(&workload, &token_id(object), &secret, &owner_of(object), expires).await.map(drop),
            None => Ok(()),
        },
    }
}

pub async fn delete(ctx: &Context, object: &WindowsBootstrapConfig, found: &Found, expired: bool) -> Result<Outcome, ReconcileError> {
    let Some(target) = &found.cluster else { return Ok(Outcome::done()) };
    let joined = found.owner.request().is_some_and(|owner| owner.node.is_some());
    let decision = if expired { token_expired(object) } else { token_used(joined) };
    if !Guard::TokenBeforeReport.holds() {
        report_status(ctx, object, &decision, None, None).await?;
    }
    let workload = ctx.clusters.get(&target.cluster).await?;
    delete_in(ctx, object, &workload).await?;
    report_status(ctx, object, &decision, None, None).await
}

async fn delete_in(ctx: &Context, object: &WindowsBootstrapConfig, workload: &Workload) -> Result<bool, WorkloadError> {
    if let Some(uid) = ctx.known_tokens.take(&object.uid().unwrap_or_default()) {
        match token::delete_made(workload, &token_id(object), &uid).await {
            // The token is not the one that this process created: it is checked like any other.
            Err(WorkloadError::Api(ApiError::Conflict(_))) => {}
            done => return done,
        }
    }
    token::delete(workload, &token_id(object), &owner_of(object).id).await
}

/// The owner of the token, in a form that `clusterctl move` does not change.
pub fn owner_of(object: &WindowsBootstrapConfig) -> token::Owner {
    let id = ObjectKey::of(&object.metadata).to_string();
    token::Owner { description: format!("WindowsBootstrapConfig {id}"), id }
}
