//! WindowsHypervisor: one listing per tick, whatever the number of machines, with back-off per endpoint. A machine whose VM has changed
//! gets a pass. The decisions are in [`crate::lifecycle::hypervisor`].

pub mod inventory;
mod login;
mod orphans;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use self::inventory::Inventories;
use self::login::Logins;
use super::runtime::caches::Caches;
use super::runtime::management::Management;
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::triggers::{Requests, Triggers, namespace};
use super::runtime::watch::Selection;
use crate::api::hypervisor::{HypervisorCapacity, HypervisorUse, WindowsHypervisor, WindowsHypervisorStatus};
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::hypervisor::drivers::Drivers;
use crate::hypervisor::{Driver, DriverError, Endpoint, Row, Wanted};
use crate::lifecycle::conditions::{conditions, observed};
use crate::lifecycle::hypervisor::{Orphan, answered, distrust, failed, is_orphan, is_to_forget, is_used_by, may_be_used_by, must_describe, unfit};
use crate::lifecycle::identity::{chosen, vm_uuid};
use crate::lifecycle::machine::{Reach, vm};
use crate::lifecycle::{Decision, paused, paused_condition};
use crate::vm::MachineKey;

const MANAGER: &str = "capw-windowshypervisor";
/// Blocks the deletion of a hypervisor that machines still use: without it their VMs could never be removed.
pub const FINALIZER: &str = "windowshypervisor.infrastructure.cluster.x-k8s.io";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub hypervisors: Hypervisors,
    pub requests: Requests,
    /// The cache has the hypervisors of all processes, since machines may refer to any.
    pub selection: Selection,
}

/// The hypervisors as machines use them: their drivers, and what they showed last.
#[derive(Clone)]
pub struct Hypervisors {
    pub caches: Arc<Caches>,
    pub drivers: Arc<Drivers>,
    pub inventories: Arc<Inventories>,
    pub logins: Arc<Logins>,
}

impl Hypervisors {
    /// What is known of a hypervisor without asking it.
    pub fn reach(&self, namespace: &str, name: &str) -> Reach {
        let unreadable = self.caches.hypervisors.unreadable(namespace);
        match self.caches.hypervisors.get(namespace, name) {
            Some(_) => self.inventories.reach(&ObjectKey::new(namespace, name)),
            None if unreadable.iter().any(|meta| meta.name.as_deref() == Some(name)) => {
                Reach::Unreachable("CAPW cannot read this object: see its condition Ready, and correct it".into())
            }
            None => Reach::Missing,
        }
    }

    /// A hypervisor and the connection to it; `None`: there is no such object, or machines may not use it (yet).
    pub fn connected(&self, namespace: &str, name: &str) -> Option<(Arc<WindowsHypervisor>, Arc<dyn Driver>)> {
        let object = self.caches.hypervisors.get(namespace, name)?;
        let driver = self.drivers.connected(&ObjectKey::new(namespace, name))?;
        Some((object, driver))
    }
}

/// A hypervisor that is being deleted waits for its last machine; one at which something has changed is listed.
pub fn triggers(caches: &Arc<Caches>, drivers: &Drivers) -> Triggers<WindowsHypervisor> {
    let held = caches.clone();
    let of_machine = caches.windows_machines.0.map(move |machine: &WindowsMachine| {
        let used = chosen(machine).filter(|_| machine.metadata.deletion_timestamp.is_some());
        let found = used.and_then(|name| held.hypervisors.get(&namespace(machine), &name));
        found.filter(|h| h.metadata.deletion_timestamp.is_some()).map(|h| ObjectRef::from_obj(&*h))
    });
    let hinted = drivers.hints().map(|key| ObjectRef::new(&key.name).within(&key.namespace)).boxed();
    vec![of_machine, hinted]
}

pub async fn reconcile(object: Arc<WindowsHypervisor>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    if let Some(why) = paused(&object.metadata, None) {
        return report(ctx, object, &Decision::new(()).with_condition(paused_condition(Some(why))), None).await;
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
            report(ctx, object, &decision, Some(seen)).await
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
            report(ctx, object, &failed(object, &error, failures), None).await
        }
    }
}

/// Another process reports about it; machines of this one may be on it.
async fn only_look(ctx: &Context, object: &WindowsHypervisor, machines: &[Arc<WindowsMachine>]) -> Outcome {
    let decision = match observe(ctx, object, machines).await {
        Ok(seen) => seen.said_of(object),
        Err(error) => failed(object, &error, ctx.hypervisors.inventories.failed(&ObjectKey::of(&object.metadata), error.to_string())),
    };
    Outcome::of(decision.requeue_after)
}

/// What a look at an endpoint gave.
struct Seen {
    endpoint: Option<Endpoint>,
    /// Why the endpoint cannot run VMs as the object asks for them, by this description or the last one.
    unfit: Option<String>,
    used: HypervisorUse,
    leftovers: Vec<String>,
    /// VMs that no machine asks for.
    orphans: Vec<Orphan>,
    tick: Duration,
}

impl Seen {
    fn said_of(&self, object: &WindowsHypervisor) -> Decision<()> {
        answered(object, self.unfit.as_deref(), &self.leftovers, self.tick)
    }
}

/// One listing; before it a description, if the endpoint was not known to answer or was not described for long.
async fn observe(ctx: &Context, object: &WindowsHypervisor, machines: &[Arc<WindowsMachine>]) -> Result<Seen, DriverError> {
    let (key, Hypervisors { inventories, drivers, .. }) = (ObjectKey::of(&object.metadata), &ctx.hypervisors);
    let now = ctx.management.now();
    let login = ctx.hypervisors.logins.of(&ctx.management.cluster, object, now).await?;
    let driver = drivers.connect(object, &login)?;
    let endpoint = if must_describe(object, drivers.admitted(&key), now) { Some(driver.describe().await?) } else { None };
    if let Some(endpoint) = &endpoint {
        if let Some(error) = distrust(object, &endpoint.id, &endpoint.lacks) {
            return Err(error);
        }
        drivers.admit(&key, Some(now));
    }
    let talks = |machine: &&Arc<WindowsMachine>| is_used_by(object, machine) && !vm::has_finished(machine);
    let wanted = Wanted { awaiting_reports: machines.iter().filter(talks).map(|machine| vm_uuid(machine)).collect() };
    let listing = driver.list(&wanted).await?;
    let used = used(&listing.rows);
    let unreadable = ctx.caches.windows_machines.unreadable(&key.namespace);
    let is_without = |row: &&Row| is_orphan(&row.key, &key.namespace, machines.iter().map(|machine| &**machine), &unreadable);
    let without: Vec<MachineKey> = listing.rows.iter().filter(is_without).map(|row| row.key.clone()).collect();
    let orphans = inventories.orphans(&key, without, ctx.management.now());
    // Machines may wait for the first answer of the endpoint.
    let is_first = inventories.reach(&key) != Reach::Reachable;
    let changed = inventories.listed(&key, listing.rows);
    for machine in machines {
        if is_used_by(object, machine) && (is_first || changed.contains(&vm_uuid(machine))) {
            ctx.requests.machine(machine);
        }
    }
    let leftovers = listing.leftovers.into_iter().map(|leftover| leftover.what).collect();
    let unfit = match &endpoint {
        Some(endpoint) => endpoint.unfit.clone(),
        None => unfit(object).map(str::to_owned),
    };
    Ok(Seen { endpoint, unfit, used, leftovers, orphans, tick: driver.caps().tick })
}

fn used(rows: &[Row]) -> HypervisorUse {
    HypervisorUse {
        machines: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        cpus: rows.iter().map(|row| i64::from(row.cpus)).sum(),
        memory: quantity(rows.iter().map(|row| row.memory_mib).sum()),
    }
}

fn quantity(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") }
}

async fn release(ctx: &Context, object: &WindowsHypervisor) -> Result<Outcome, ReconcileError> {
    ctx.management.remove_finalizer(object, FINALIZER).await?;
    let key = ObjectKey::of(&object.metadata);
    ctx.hypervisors.drivers.forget(&key);
    ctx.hypervisors.inventories.forget(&key);
    ctx.hypervisors.logins.forget(&key);
    Ok(Outcome::done())
}

async fn report(ctx: &Context, object: &WindowsHypervisor, decision: &Decision<()>, seen: Option<Seen>) -> Result<Outcome, ReconcileError> {
    let mut next: WindowsHypervisorStatus = object.status.clone().unwrap_or_default();
    next.conditions = conditions(&next.conditions, &decision.conditions, object.metadata.generation, ctx.management.now());
    next.observed_generation = observed(&next.conditions, object.metadata.generation, next.observed_generation);
    next.driver = object.spec.driver().map(str::to_owned);
    let (endpoint, used) = seen.map(|seen| (seen.endpoint, seen.used)).unzip();
    next.used = used.or(next.used);
    if let Some(endpoint) = endpoint.flatten() {
        next.endpoint_id.get_or_insert(endpoint.id);
        let memory = endpoint.memory_mib.map(quantity);
        next.capacity = (endpoint.cpus.is_some() || memory.is_some()).then_some(HypervisorCapacity { cpus: endpoint.cpus, memory });
        next.version = Some(endpoint.version);
    }
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(decision.requeue_after))
}

#[cfg(test)]
mod tests;
