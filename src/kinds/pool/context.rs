//! The context of a pass for a WindowsNodePool, and how its status is written.

use std::sync::Arc;

use super::memory::Memories;
use super::report;
use crate::api::condition::Desired;
use crate::api::pool::WindowsNodePool;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::owners::Owners;
use crate::engine::workload_clusters::WorkloadClusters;
use crate::kinds::hypervisor::Hypervisors;

pub(super) const MANAGER: &str = "capw-windowsnodepool";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    pub memories: Arc<Memories>,
}

pub(super) async fn report_status(ctx: &Context, object: &WindowsNodePool, conditions: &[Desired]) -> Result<Outcome, ReconcileError> {
    let next = report::status(object, conditions, None, ctx.management.now());
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}
