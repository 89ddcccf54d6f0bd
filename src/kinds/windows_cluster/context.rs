//! What every step of a pass for a WindowsCluster uses, and how it writes the status.

use std::sync::Arc;
use std::time::Duration;

use crate::api::cluster::{WindowsCluster, WindowsClusterStatus};
use crate::api::condition::Desired;
use crate::domain::conditions::{conditions, observed};
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::WorkloadClusters;
use crate::kinds::hypervisor::Hypervisors;

pub(super) const MANAGER: &str = "capw-windowscluster";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    /// CAPW's own, if it is known.
    pub image: Option<String>,
}

/// Reports the status `next` with these conditions.
pub(super) async fn report_status(
    ctx: &Context,
    object: &WindowsCluster,
    mut next: WindowsClusterStatus,
    said: &[Desired],
    requeue_after: Option<Duration>,
) -> Result<Outcome, ReconcileError> {
    next.conditions = conditions(&next.conditions, said, object.metadata.generation, ctx.management.now());
    next.observed_generation = observed(&next.conditions, object.metadata.generation, next.observed_generation);
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(requeue_after))
}
