//! WindowsHypervisor: one listing per tick, whatever the number of machines, with back-off per endpoint. A machine whose VM has changed
//! gets a pass. The decisions are in [`crate::lifecycle::hypervisor`].

pub mod inventory;
mod orphans;

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use self::inventory::Inventories;
use super::runtime::caches::Caches;
use super::runtime::management::Management;
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::triggers::{Requests, Triggers, namespace};
use crate::api::hypervisor::{HypervisorCapacity, WindowsHypervisor, WindowsHypervisorStatus};
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::hypervisor::drivers::Drivers;
use crate::hypervisor::{Driver, DriverError, Endpoint};
use crate::lifecycle::conditions::conditions;
use crate::lifecycle::hypervisor::{Orphan, answered, failed, is_orphan, is_used_by, must_describe};
use crate::lifecycle::identity::{chosen, vm_uuid};
use crate::lifecycle::machine::Reach;
use crate::lifecycle::{Decision, paused, paused_condition};
use crate::vm::MachineKey;

/// A driver, or why there is none.
type DriverResult = Result<Arc<dyn Driver>, DriverError>;

const MANAGER: &str = "capw-windowshypervisor";
/// Blocks the deletion of a hypervisor that machines still use: without it their VMs could never be removed.
pub const FINALIZER: &str = "windowshypervisor.infrastructure.cluster.x-k8s.io";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub hypervisors: Hypervisors,
    pub requests: Requests,
}

/// The hypervisors as machines use them: their drivers, and what they showed last.
#[derive(Clone)]
pub struct Hypervisors {
    pub caches: Arc<Caches>,
    pub drivers: Arc<Drivers>,
    pub inventories: Arc<Inventories>,
}

impl Hypervisors {
    /// What is known of a hypervisor without asking it.
    pub fn reach(&self, namespace: &str, name: &str) -> Reach {
        match self.caches.hypervisors.get(namespace, name) {
            Some(_) => self.inventories.reach(&ObjectKey::new(namespace, name)),
            None => Reach::Missing,
        }
    }

    /// A hypervisor and its driver; `None`: there is no such object.
    pub fn driver(&self, namespace: &str, name: &str) -> Option<(ObjectKey, DriverResult)> {
        let object = self.caches.hypervisors.get(namespace, name)?;
        Some((ObjectKey::new(namespace, name), self.drivers.get(&object)))
    }
}

/// A hypervisor that is being deleted waits for its last machine.
pub fn triggers(caches: &Arc<Caches>) -> Triggers<WindowsHypervisor> {
    let held = caches.clone();
    let of_machine = caches.windows_machines.0.map(move |machine: &WindowsMachine| {
        let used = chosen(machine).filter(|_| machine.metadata.deletion_timestamp.is_some());
        let found = used.and_then(|name| held.hypervisors.get(&namespace(machine), &name));
        found.filter(|h| h.metadata.deletion_timestamp.is_some()).map(|h| ObjectRef::from_obj(&*h))
    });
    vec![of_machine]
}

pub async fn reconcile(object: Arc<WindowsHypervisor>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    if let Some(why) = paused(&object.metadata, None) {
        return report(ctx, object, &Decision::new(()).say(paused_condition(Some(why))), None).await;
    }
    let machines = ctx.caches.windows_machines.all(&object.namespace().unwrap_or_default());
    if object.metadata.deletion_timestamp.is_some() && !machines.iter().any(|machine| is_used_by(object, machine)) {
        return release(ctx, object).await;
    }
    if object.metadata.deletion_timestamp.is_none() && ctx.management.add_finalizer(object, FINALIZER).await? {
        return Ok(Outcome::done());
    }
    match look(ctx, object, &machines).await {
        Ok((endpoint, orphans)) => {
            let said = orphans::look_after(ctx, object, orphans).await?;
            let decision = said.into_iter().fold(answered(), Decision::say);
            report(ctx, object, &decision, endpoint).await
        }
        Err(error) => {
            let failures = ctx.hypervisors.inventories.failed(&ObjectKey::of(&object.metadata), error.to_string());
            report(ctx, object, &failed(&error, failures), None).await
        }
    }
}

/// One listing, and a description if the endpoint was not known to answer; with the VMs that no machine asks for.
async fn look(ctx: &Context, object: &WindowsHypervisor, machines: &[Arc<WindowsMachine>]) -> Result<(Option<Endpoint>, Vec<Orphan>), DriverError> {
    let (key, inventories) = (ObjectKey::of(&object.metadata), &ctx.hypervisors.inventories);
    let driver = ctx.hypervisors.drivers.get(object)?;
    let endpoint = if must_describe(object) { Some(driver.describe().await?) } else { None };
    let rows = driver.owned().await?;
    let without: Vec<MachineKey> =
        rows.iter().filter(|row| is_orphan(&row.key, &key.namespace, machines.iter().map(|m| &**m))).map(|row| row.key.clone()).collect();
    let orphans = inventories.orphans(&key, without, ctx.management.now());
    // Machines may wait for the first answer of the endpoint.
    let is_first = inventories.reach(&key) != Reach::Reachable;
    let changed = inventories.listed(&key, rows);
    for machine in machines {
        if is_used_by(object, machine) && (is_first || changed.contains(&vm_uuid(machine))) {
            ctx.requests.machine(machine);
        }
    }
    Ok((endpoint, orphans))
}

async fn release(ctx: &Context, object: &WindowsHypervisor) -> Result<Outcome, ReconcileError> {
    ctx.management.remove_finalizer(object, FINALIZER).await?;
    let key = ObjectKey::of(&object.metadata);
    ctx.hypervisors.drivers.forget(&key);
    ctx.hypervisors.inventories.forget(&key);
    Ok(Outcome::done())
}

async fn report(ctx: &Context, object: &WindowsHypervisor, decision: &Decision<()>, endpoint: Option<Endpoint>) -> Result<Outcome, ReconcileError> {
    let mut next: WindowsHypervisorStatus = object.status.clone().unwrap_or_default();
    next.conditions = conditions(&next.conditions, &decision.conditions, object.metadata.generation, ctx.management.now());
    next.driver = object.spec.simulated.as_ref().map(|_| "simulated".to_owned());
    if let Some(endpoint) = endpoint {
        let memory = endpoint.memory_mib.map(|mib| if mib % 1024 == 0 { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") });
        next.capacity = (endpoint.cpus.is_some() || memory.is_some()).then_some(HypervisorCapacity { cpus: endpoint.cpus, memory });
        next.version = Some(endpoint.version);
    }
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(decision.look_again))
}

#[cfg(test)]
mod tests;
