//! Calls that fail though the fault should pass by itself: after some of them the machine says so, with the hypervisor's own words.

use super::context::Context;
use super::decide::driver_failure::{self, AfterFailure};
use super::decide::step::Target;
use super::decide::vm::VmStep;
use crate::api::condition::Desired;
use crate::api::machine::WindowsMachine;
use crate::hypervisor::{DriverError, DriverStep};

/// What a failed call means now, after those before it.
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

/// What a step that was carried out says. That a task was accepted, or is under way, is no success: what is told of failures stays until there
/// is one.
pub fn said(ctx: &Context, object: &WindowsMachine, target: &Target, step: &VmStep, called: &DriverStep, conditions: &[Desired]) -> Vec<Desired> {
    let is_underway = matches!(called, DriverStep::Started { .. } | DriverStep::Wait { .. });
    if !is_underway {
        ctx.failures.ended(target.key.vm);
    }
    // When a guest was asked to shut down is counted from what is said then.
    let is_stop_counted = !matches!(step, VmStep::Retire(_)) || object.status.as_ref().is_some_and(|status| status.stopping_since.is_some());
    match ctx.failures.told(target.key.vm).filter(|_| is_stop_counted) {
        Some(words) => driver_failure::lasting(object, &target.hypervisor, &words),
        None => conditions.to_vec(),
    }
}
