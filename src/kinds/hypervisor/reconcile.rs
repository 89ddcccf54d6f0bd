//! The pass for a WindowsHypervisor.

use std::sync::Arc;

use kube::ResourceExt;

use super::context::{Context, report_status};
use super::decide::listing::{failed, is_to_forget, is_used_by, may_be_used_by};
use super::observe::observe;
use super::orphans;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::domain::decision::Decision;
use crate::domain::gate::{paused, paused_condition};
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::hypervisor::DriverError;

/// Blocks the deletion of a hypervisor that machines still use: without the hypervisor, their VMs could never be removed.
pub const FINALIZER: &str = "windowshypervisor.infrastructure.cluster.x-k8s.io";

pub async fn reconcile(object: Arc<WindowsHypervisor>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    if let Some(why) = paused(&object.metadata, None) {
        return report_status(ctx, object, &Decision::new(()).with_condition(paused_condition(Some(why))), None, None).await;
    }
    let namespace = object.namespace().unwrap_or_default();
    let unreadable = ctx.caches.windows_machines.unreadable(&namespace);
    let machines = ctx.caches.windows_machines.all(&namespace);
    if !ctx.selection.selects(&object.metadata) {
        return Ok(only_look(ctx, object, &machines).await);
    }
    let is_used = machines.iter().any(|machine| is_used_by(object, machine)) || unreadable.iter().any(|machine| may_be_used_by(object, machine));
    if object.metadata.deletion_timestamp.is_some() && !is_used {
        return release(ctx, object).await;
    }
    if object.metadata.deletion_timestamp.is_none() && ctx.management.add_finalizer(object, FINALIZER).await? {
        return Ok(Outcome::done());
    }
    match observe(ctx, object, &machines).await {
        Ok(seen) => {
            let said = orphans::look_after(ctx, object, &seen.orphans).await?;
            let decision = said.into_iter().fold(seen.said_of(object), Decision::with_condition);
            report_status(ctx, object, &decision, seen.endpoint, Some(seen.used)).await
        }
        Err(error) => {
            let key = ObjectKey::of(&object.metadata);
            if matches!(error, DriverError::Auth(_) | DriverError::Denied(_) | DriverError::Certificate(_) | DriverError::EndpointChanged(_)) {
                ctx.hypervisors.drivers.admit(&key, None);
                ctx.hypervisors.logins.forget(&key);
            }
            if is_to_forget(object, &error) {
                ctx.hypervisors.drivers.forget(&key);
            }
            let failures = ctx.hypervisors.inventories.failed(&key, error.to_string());
            report_status(ctx, object, &failed(object, &error, failures), None, None).await
        }
    }
}

/// Lists a hypervisor that another process reports about: machines of this process may be on it.
async fn only_look(ctx: &Context, object: &WindowsHypervisor, machines: &[Arc<WindowsMachine>]) -> Outcome {
    let decision = match observe(ctx, object, machines).await {
        Ok(seen) => seen.said_of(object),
        Err(error) => failed(object, &error, ctx.hypervisors.inventories.failed(&ObjectKey::of(&object.metadata), error.to_string())),
    };
    Outcome::of(decision.requeue_after)
}

async fn release(ctx: &Context, object: &WindowsHypervisor) -> Result<Outcome, ReconcileError> {
    ctx.management.remove_finalizer(object, FINALIZER).await?;
    let key = ObjectKey::of(&object.metadata);
    ctx.hypervisors.drivers.forget(&key);
    ctx.hypervisors.inventories.forget(&key);
    ctx.hypervisors.logins.forget(&key);
    Ok(Outcome::done())
}

#[cfg(test)]
mod tests;
