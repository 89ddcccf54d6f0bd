//! Calls that keep failing although the fault should pass automatically: after some of them, the machine reports the hypervisor's message.

use super::context::Context;
use super::decide::driver_failure::{self, AfterFailure};
use super::decide::step::Target;
use super::decide::vm::VmStep;
use crate::api::condition::Desired;
use crate::api::machine::WindowsMachine;
use crate::hypervisor::{DriverError, DriverStep};

/// The reaction to a failed call, in view of the failures before it.
pub fn after(ctx: &Context, object: &WindowsMachine, target: &Target, error: &DriverError) -> AfterFailure {
    let (vm, now) = (target.key.vm, ctx.management.now());
    match driver_failure::after(object, &target.hypervisor, error) {
        AfterFailure::BackOff => match ctx.failures.failed(vm, &error.to_string(), now) {
            Some(words) => AfterFailure::BackOffAndReport(driver_failure::lasting(object, &target.hypervisor, &words)),
            None => AfterFailure::BackOff,
        },
        AfterFailure::Report(decision) => {
            ctx.failures.ended(vm);
            AfterFailure::Report(decision)
        }
        other => other,
    }
}

/// The conditions after a step was carried out. A task that was accepted or is in progress is not a success: reported failures stay until a
/// call succeeds.
pub fn said(ctx: &Context, object: &WindowsMachine, target: &Target, step: &VmStep, called: &DriverStep, conditions: &[Desired]) -> Vec<Desired> {
    let is_underway = matches!(called, DriverStep::Started { .. } | DriverStep::Wait { .. });
    if !is_underway {
        ctx.failures.ended(target.key.vm);
    }
    // The first report of the stop starts the guest's shutdown time, so it must not be replaced.
    let is_stop_counted = !matches!(step, VmStep::Retire(_)) || object.status.as_ref().is_some_and(|status| status.stopping_since.is_some());
    match ctx.failures.told(target.key.vm).filter(|_| is_stop_counted) {
        Some(words) => driver_failure::lasting(object, &target.hypervisor, &words),
        None => conditions.to_vec(),
    }
}
