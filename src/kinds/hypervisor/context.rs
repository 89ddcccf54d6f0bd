//! The context of a pass for a WindowsHypervisor, and how its status is written.

use std::sync::Arc;

use super::hypervisors::Hypervisors;
use super::report;
use crate::api::hypervisor::{HypervisorUse, WindowsHypervisor};
use crate::domain::decision::Decision;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::triggers::Requests;
use crate::engine::watch::Selection;
use crate::vm::Endpoint;

const MANAGER: &str = "capw-windowshypervisor";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub hypervisors: Hypervisors,
    pub requests: Requests,
    /// Selects our objects: the cache has the hypervisors of all processes, since machines may refer to any hypervisor.
    pub selection: Selection,
}

/// `endpoint` and `used` are `None` when they were not read this time.
pub(super) async fn report_status(
    ctx: &Context,
    object: &WindowsHypervisor,
    decision: &Decision<()>,
    endpoint: Option<Endpoint>,
    used: Option<HypervisorUse>,
) -> Result<Outcome, ReconcileError> {
    let next = report::status(object, &decision.conditions, endpoint, used, ctx.management.now());
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(decision.requeue_after))
}
