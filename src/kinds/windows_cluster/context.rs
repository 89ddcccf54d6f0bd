//! The context of a pass for a WindowsCluster, and how its status is written.

use std::sync::Arc;
use std::time::Duration;

use super::report;
use crate::api::cluster::{WindowsCluster, WindowsClusterStatus};
use crate::api::condition::Desired;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::WorkloadClusters;
use crate::kinds::hypervisor::Hypervisors;

const MANAGER: &str = "capw-windowscluster";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    /// CAPW's own image, if it is known.
    pub image: Option<String>,
}

/// Reports the status `next` with these conditions.
pub(super) async fn report_status(
    ctx: &Context,
    object: &WindowsCluster,
    next: WindowsClusterStatus,
    said: &[Desired],
    requeue_after: Option<Duration>,
) -> Result<Outcome, ReconcileError> {
    let next = report::status(object, next, said, ctx.management.now());
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(requeue_after))
}
