//! The observed VM of a WindowsMachine: from the last listing of its hypervisor, or by a direct read.

use super::context::Context;
use super::decide::join;
use super::decide::step::{Goal, Target};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::domain::identity::is_provisioned;
use crate::hypervisor::{Driver, DriverError, Kept};
use crate::vm::{Journal, Observed};

/// A VM and the driver that reaches it.
pub struct Vm<'a> {
    pub driver: &'a dyn Driver,
    pub hypervisor: &'a WindowsHypervisor,
    /// The key of the hypervisor.
    pub place: &'a ObjectKey,
    pub target: &'a Target,
    pub journal: Journal,
}

/// Observes the VM: a row of the last listing where that is enough, else a direct read. If the VM is being created or removed, a change follows
/// the read: the place for it is kept while the second value lives, and without a place the read would be useless.
pub async fn observe(ctx: &Context, object: &WindowsMachine, vm: &Vm<'_>) -> Result<(Observed, Option<Kept>), DriverError> {
    let inventories = &ctx.hypervisors.inventories;
    let settled = matches!(vm.target.goal, Goal::Run { .. }) && (is_provisioned(object) || object.spec.provider_id.is_some());
    let listed = (settled && !join::is_given_up(object, ctx.management.now())).then(|| inventories.running(vm.place, vm.target.key.vm)).flatten();
    let kept = if settled { None } else { vm.driver.keep_place(&vm.target.key)? };
    let observed = match listed {
        Some(row) => Observed::Present(row),
        None => observe_vm(object, vm).await.inspect_err(|error| {
            // The other machines need not detect the outage themselves. The next successful listing marks the endpoint as reachable again.
            if let DriverError::Unreachable(cause) = error {
                inventories.failed(vm.place, cause.clone());
            }
        })?,
    };
    let present = if let Observed::Present(present) = &observed { Some(present.clone()) } else { None };
    inventories.note(vm.place, vm.target.key.vm, present);
    Ok((observed, kept))
}

/// Reads the VM directly. An absent VM is final for every machine except one whose VM is still to be created, so for the others absence is proven.
async fn observe_vm(object: &WindowsMachine, vm: &Vm<'_>) -> Result<Observed, DriverError> {
    let observed = vm.driver.observe(&vm.target.key, &vm.journal).await?;
    if observed == Observed::Absent && (vm.target.goal == Goal::Gone || object.spec.provider_id.is_some()) {
        vm.driver.confirm_absence(&vm.target.key).await?;
    }
    Ok(observed)
}
