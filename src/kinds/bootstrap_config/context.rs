//! The context of a pass for a WindowsBootstrapConfig, and how its status is written.

use std::sync::Arc;

use super::decide::outcome::{self, DataProblem};
use super::memory::{KnownTokens, SecretOwners, Unreported};
use super::report::{self, Token};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::domain::decision::Decision;
use crate::engine::caches::Caches;
use crate::engine::made_secrets::MadeSecrets;
use crate::engine::management::{Management, NewTokenSecret};
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::owners::Owners;
use crate::engine::workload_clusters::{WorkloadClusters, fault};
use crate::kube_api::workload::WorkloadError;

pub(super) const MANAGER: &str = "capw-windowsbootstrapconfig";

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

pub(super) async fn report_status<S>(
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

/// Reports that the workload cluster cannot be used. A fault that passes automatically is retried instead.
pub(super) async fn unusable(ctx: &Context, object: &WindowsBootstrapConfig, error: &WorkloadError) -> Result<Outcome, ReconcileError> {
    let Some(fault) = fault(error) else { return Err(ReconcileError::Workload(error.clone())) };
    report_status(ctx, object, &outcome::not_made(DataProblem::Cluster(fault), error.to_string()), None, None).await
}
