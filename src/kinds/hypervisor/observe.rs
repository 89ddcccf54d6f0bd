//! One listing of an endpoint, and its effects on the machines there.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::decide::listing::{answered, distrust, is_used_by, must_describe, unfit};
use super::decide::orphans::{Orphan, claimed, is_orphan};
use super::hypervisors::Hypervisors;
use super::report::quantity;
use crate::api::hypervisor::{HypervisorUse, WindowsHypervisor};
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::domain::decision::Decision;
use crate::domain::identity::vm_uuid;
use crate::hypervisor::{DriverError, Endpoint, Row, Wanted};
use crate::kinds::machine::decide::step::Reach;
use crate::kinds::machine::decide::vm;
use crate::vm::MachineKey;

/// The observed state of an endpoint.
pub(super) struct Seen {
    pub endpoint: Option<Endpoint>,
    /// Why the endpoint cannot run VMs as the object requires, according to this description or the last one.
    pub unfit: Option<String>,
    pub used: HypervisorUse,
    pub leftovers: Vec<String>,
    /// VMs that no machine claims.
    pub orphans: Vec<Orphan>,
    pub tick: Duration,
}

impl Seen {
    pub fn said_of(&self, object: &WindowsHypervisor) -> Decision<()> {
        answered(object, self.unfit.as_deref(), &self.leftovers, self.tick)
    }
}

/// Lists the VMs. Describes the endpoint first if it was not known to answer or its last description is too old.
pub(super) async fn observe(ctx: &Context, object: &WindowsHypervisor, machines: &[Arc<WindowsMachine>]) -> Result<Seen, DriverError> {
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
    let claimed = claimed(machines.iter().map(|machine| &**machine), &unreadable);
    let is_without = |row: &&Row| is_orphan(&row.key, &key.namespace, &claimed);
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
