//! The VM of a WindowsMachine as it is: from the last listing of its hypervisor, or by a direct look.

use super::context::Context;
use super::decide::step::{Goal, Target};
use super::decide::vm;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::domain::identity::is_provisioned;
use crate::hypervisor::{Driver, DriverError, Kept};
use crate::vm::{Journal, Observed};

/// One VM and the way to it.
pub struct Vm<'a> {
    pub driver: &'a dyn Driver,
    pub hypervisor: &'a WindowsHypervisor,
    /// Its key.
    pub place: &'a ObjectKey,
    pub target: &'a Target,
    pub journal: Journal,
}

/// The VM as it is: a row of the last listing where that is enough, else a direct look. What is seen of a VM in the making, or going, leads
/// to a change: the place for it is kept while the second value lives, and without one a look would be for nothing.
pub async fn observe(ctx: &Context, object: &WindowsMachine, vm: &Vm<'_>) -> Result<(Observed, Option<Kept>), DriverError> {
    let inventories = &ctx.hypervisors.inventories;
    let settled = matches!(vm.target.goal, Goal::Run { .. }) && (is_provisioned(object) || object.spec.provider_id.is_some());
    let listed = (settled && !vm::is_given_up(object, ctx.management.now())).then(|| inventories.running(vm.place, vm.target.key.vm)).flatten();
    let kept = if settled { None } else { vm.driver.keep_place(&vm.target.key)? };
    let observed = match listed {
        Some(row) => Observed::Present(row),
        None => observe_vm(object, vm).await.inspect_err(|error| {
            // The other machines need not find out by themselves: the next listing that succeeds says that it answers again.
            if let DriverError::Unreachable(cause) = error {
                inventories.failed(vm.place, cause.clone());
            }
        })?,
    };
    let present = if let Observed::Present(present) = &observed { Some(present.clone()) } else { None };
    inventories.note(vm.place, vm.target.key.vm, present);
    Ok((observed, kept))
}

/// A direct look. That nothing is there ends every machine but one whose VM is still to be made, so of all others it is proven.
async fn observe_vm(object: &WindowsMachine, vm: &Vm<'_>) -> Result<Observed, DriverError> {
    let observed = vm.driver.observe(&vm.target.key, &vm.journal).await?;
    if observed == Observed::Absent && (vm.target.goal == Goal::Gone || object.spec.provider_id.is_some()) {
        vm.driver.confirm_absence(&vm.target.key).await?;
    }
    Ok(observed)
}
