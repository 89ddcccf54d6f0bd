//! WindowsHypervisor: one listing per tick, whatever the number of machines; back-off per endpoint; machines are woken when their VM changed.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::Context;
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::hypervisor::{HypervisorCapacity, WindowsHypervisor, WindowsHypervisorStatus};
use crate::hypervisor::{Driver, DriverError, Endpoint};
use crate::lifecycle::machine::{Reach, chosen, vm_uuid};
use crate::lifecycle::{self, paused, paused_condition};

const MANAGER: &str = "capw-windowshypervisor";
/// Blocks the deletion of a hypervisor that machines still use: without it their VMs could never be removed.
pub const FINALIZER: &str = "windowshypervisor.infrastructure.cluster.x-k8s.io";
/// Between two listings of an endpoint that answers.
const TICK: Duration = Duration::from_secs(10);
/// After a listing that failed: doubled each time, up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

pub async fn reconcile(object: Arc<WindowsHypervisor>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    if let Some(why) = paused(&object.metadata, None) {
        return say(ctx, &object, &[paused_condition(Some(why))], None, Outcome::done()).await;
    }
    if object.metadata.deletion_timestamp.is_some() && !in_use(ctx, &object) {
        return release(ctx, &object).await;
    }
    if object.metadata.deletion_timestamp.is_none()
        && let Some(written) = ctx.cluster.add_finalizer(&*object, FINALIZER).await?
    {
        ctx.written.note(&written);
        return Ok(Outcome::done());
    }
    match look(ctx, &object).await {
        Ok(endpoint) => answered(ctx, &object, endpoint).await,
        Err(error) => silent(ctx, &object, &error).await,
    }
}

/// One listing, and a description when the endpoint was not known to answer.
async fn look(ctx: &Context, object: &WindowsHypervisor) -> Result<Option<Endpoint>, DriverError> {
    let driver: Arc<dyn Driver> = ctx.drivers.get(object)?;
    let known = object.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, ConditionType::Reachable) && s.version.is_some());
    let endpoint = if known { None } else { Some(driver.describe().await?) };
    let rows = driver.owned().await?;
    // Machines may wait for the first answer of the endpoint.
    let news = ctx.inventories.reach(&place(object)) != Reach::Reachable;
    let changed = ctx.inventories.listed(&place(object), rows);
    for machine in ctx.stores.windows_machines.all(&object.namespace().unwrap_or_default()) {
        if chosen(&machine).as_deref() == object.metadata.name.as_deref() && (news || changed.contains(&vm_uuid(&machine))) {
            ctx.wake.machine(&machine);
        }
    }
    Ok(endpoint)
}

async fn answered(ctx: &Context, object: &WindowsHypervisor, endpoint: Option<Endpoint>) -> Result<Outcome, ReconcileError> {
    let said = [Desired::yes(ConditionType::Reachable, Reason::Reachable), Desired::yes(ConditionType::Ready, Reason::Reachable)];
    say(ctx, object, &said, endpoint, Outcome::look_again(TICK)).await
}

async fn silent(ctx: &Context, object: &WindowsHypervisor, error: &DriverError) -> Result<Outcome, ReconcileError> {
    let why = match error {
        DriverError::Auth(_) => Reason::Unauthorized,
        DriverError::Invalid(_) => Reason::InvalidSpec,
        _ => Reason::HypervisorUnreachable,
    };
    let failures = ctx.inventories.failed(&place(object), error.to_string());
    let after = BACKOFF.0.saturating_mul(1 << failures.min(10).saturating_sub(1)).min(BACKOFF.1);
    let said = [Desired::no(ConditionType::Reachable, why, error.to_string()), Desired::no(ConditionType::Ready, why, error.to_string())];
    say(ctx, object, &said, None, Outcome::look_again(after)).await
}

/// Some WindowsMachine has, or may have, a VM there.
fn in_use(ctx: &Context, object: &WindowsHypervisor) -> bool {
    let machines = ctx.stores.windows_machines.all(&object.namespace().unwrap_or_default());
    machines.iter().any(|m| chosen(m).as_deref() == object.metadata.name.as_deref())
}

async fn release(ctx: &Context, object: &WindowsHypervisor) -> Result<Outcome, ReconcileError> {
    if let Some(written) = ctx.cluster.remove_finalizer(object, FINALIZER).await? {
        ctx.written.note(&written);
    }
    let (namespace, name) = place(object);
    ctx.drivers.forget(&namespace, &name);
    ctx.inventories.forget(&(namespace, name));
    Ok(Outcome::done())
}

async fn say(
    ctx: &Context,
    object: &WindowsHypervisor,
    said: &[Desired],
    endpoint: Option<Endpoint>,
    outcome: Outcome,
) -> Result<Outcome, ReconcileError> {
    let mut next: WindowsHypervisorStatus = object.status.clone().unwrap_or_default();
    next.conditions = lifecycle::report::conditions(&next.conditions, said, object.metadata.generation, ctx.now());
    next.driver = object.spec.simulated.as_ref().map(|_| "simulated".to_owned());
    if let Some(endpoint) = endpoint {
        let memory = endpoint.memory_mib.map(|mib| if mib % 1024 == 0 { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") });
        next.capacity = (endpoint.cpus.is_some() || memory.is_some()).then_some(HypervisorCapacity { cpus: endpoint.cpus, memory });
        next.version = Some(endpoint.version);
    }
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(outcome)
}

fn place(object: &WindowsHypervisor) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}
