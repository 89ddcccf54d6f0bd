//! The context of a pass for a WindowsMachine, and how its status is written.

use std::sync::Arc;

use super::memory::{Deletions, Endings, Failures, Seeds};
use super::report;
use crate::api::condition::Desired;
use crate::api::machine::WindowsMachine;
use crate::domain::decision::Decision;
use crate::engine::caches::Caches;
use crate::engine::made_secrets::MadeSecrets;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::owners::Owners;
use crate::engine::workload_clusters::WorkloadClusters;
use crate::kinds::hypervisor::Hypervisors;
use crate::vm::{Journal, Present};

const MANAGER: &str = "capw-windowsmachine";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    pub made_secrets: Arc<MadeSecrets>,
    pub seeds: Arc<Seeds>,
    pub failures: Arc<Failures>,
    pub endings: Arc<Endings>,
    pub deletions: Arc<Deletions>,
}

/// Reports a decision. The write triggers the next pass.
pub(super) async fn report_status<S>(
    ctx: &Context,
    object: &WindowsMachine,
    decision: &Decision<S>,
    present: Option<&Present>,
) -> Result<Outcome, ReconcileError> {
    write(ctx, object, &decision.conditions, present, None).await?;
    Ok(Outcome::of(decision.requeue_after))
}

/// Writes the conditions, the observed state and the journal if they differ from the stored status.
pub(super) async fn write(
    ctx: &Context,
    object: &WindowsMachine,
    said: &[Desired],
    present: Option<&Present>,
    journal: Option<Journal>,
) -> Result<(), ReconcileError> {
    if said.is_empty() && journal.is_none() && object.metadata.deletion_timestamp.is_some() {
        // The deletion alone has changed the generation.
        return Ok(());
    }
    let next = report::status(object, said, present, journal, ctx.management.now());
    Ok(ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?)
}
