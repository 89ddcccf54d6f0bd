//! The context of a pass for an ExternalControlPlane, and how its status is written.

use std::sync::Arc;

use super::clients::Clients;
use super::decide::Answer;
use super::report;
use crate::api::control_plane::ExternalControlPlane;
use crate::domain::decision::Decision;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::WorkloadClusters;

const MANAGER: &str = "capw-externalcontrolplane";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub clusters: WorkloadClusters,
    pub clients: Arc<Clients>,
}

pub(super) async fn report_status<S>(
    ctx: &Context,
    object: &ExternalControlPlane,
    said: &Decision<S>,
    answer: Option<&Answer>,
) -> Result<Outcome, ReconcileError> {
    let next = report::status(object, &said.conditions, answer, ctx.management.now());
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(said.requeue_after))
}
