//! Carries out a pass: the calls to the hypervisor, and the writes of the WindowsMachine and its Node.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, report_status, write};
use super::decide::driver_failure::{self, AfterFailure};
use super::decide::step::{Goal, Target};
use super::decide::vm::{self, VmStep};
use super::node_teardown::delete_left_node;
use super::observe::Vm;
use super::{failures, seed};
use crate::api::machine::{FINALIZER, WindowsMachine};
use crate::domain::decision::Decision;
use crate::domain::identity::{adoption, annotated};
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::hypervisor::{DriverError, DriverStep as Called};
use crate::kinds::hypervisor::decide::listing::{is_used_by, room};
use crate::vm::{Observed, Present, Seed, Seeded, VmSpec};

/// Why a step failed.
enum Failure {
    Driver(DriverError),
    Secret(String),
    Reconcile(ReconcileError),
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

/// Carries out a decision about the VM.
pub async fn carry_out(
    ctx: &Context,
    object: &WindowsMachine,
    vm: &Vm<'_>,
    observed: &Observed,
    decision: &Decision<VmStep>,
) -> Result<Outcome, ReconcileError> {
    let (key, journal) = (&vm.target.key, &vm.journal);
    let called = match &decision.step {
        VmStep::Wait => {
            ctx.failures.ended(key.vm);
            return report_status(ctx, object, decision, None).await;
        }
        VmStep::Report(present) => {
            ctx.seeds.forget(key.vm);
            ctx.failures.ended(key.vm);
            return report_status(ctx, object, decision, Some(present)).await;
        }
        VmStep::SetProviderId(id) => {
            ctx.management.merge_spec(object, json!({ "providerID": id.to_string() })).await?;
            return Ok(Outcome::done());
        }
        VmStep::Release => {
            ctx.seeds.forget(key.vm);
            ctx.endings.forget(key.vm);
            ctx.failures.ended(key.vm);
            ctx.hypervisors.inventories.note(vm.place, key.vm, None);
            return match delete_left_node(ctx, object).await? {
                Some(waiting) => report_status(ctx, object, &waiting, None).await,
                None => release(ctx, object).await,
            };
        }
        VmStep::Detach(present) => match vm.driver.detach(key, journal).await {
            Ok(Called::Done | Called::Changed) => {
                // This entry is valid until the next listing.
                ctx.hypervisors.inventories.note(vm.place, key.vm, Some(Present { seeded: Seeded::No, ..(**present).clone() }));
                tracing::info!("the Node has joined: the configuration drive was detached");
                return report_status(ctx, object, decision, Some(present)).await;
            }
            Err(DriverError::Invalid(cause)) => {
                let decision = decision.clone().with_condition(vm::seed_not_detached(&vm.target.hypervisor, &cause));
                return report_status(ctx, object, &decision, None).await;
            }
            other => other.map_err(Failure::Driver),
        },
        VmStep::Create => create(ctx, object, vm, observed).await,
        VmStep::Advance => advance(ctx, object, vm, observed).await,
        VmStep::Retire(how) => vm.driver.retire(key, *how, journal, observed).await.map_err(Failure::Driver),
    };
    match called {
        Ok(called) => carried_out(ctx, object, vm.target, decision, called).await,
        Err(Failure::Driver(error)) => {
            if matches!(error, DriverError::Denied(_) | DriverError::EndpointChanged(_)) {
                // The endpoint is described again at its next listing.
                ctx.hypervisors.drivers.admit(vm.place, None);
            }
            driver_failed(ctx, object, vm.target, &error).await
        }
        Err(Failure::Secret(message)) => report_status(ctx, object, &driver_failure::secret_unusable(message), None).await,
        Err(Failure::Reconcile(error)) => Err(error),
    }
}

/// Writes the result of a call: its journal and the conditions in one write. A second write would conflict, as it would name an outdated version.
async fn carried_out(
    ctx: &Context,
    object: &WindowsMachine,
    target: &Target,
    decision: &Decision<VmStep>,
    called: Called,
) -> Result<Outcome, ReconcileError> {
    if let Called::Failed { journal, error } = called {
        let said = match failures::after(ctx, object, target, &error) {
            AfterFailure::Report(failure) => failure.conditions,
            AfterFailure::BackOffAndReport(said) => said,
            AfterFailure::TryAgain(_) | AfterFailure::BackOff => Vec::new(),
        };
        write(ctx, object, &said, None, Some(journal)).await?;
        return Ok(Outcome::requeue_after(driver_failure::RECHECK));
    }
    let said = failures::said(ctx, object, target, &decision.step, &called, &decision.conditions);
    match called {
        Called::Started { journal } => write(ctx, object, &said, None, Some(journal)).await.map(|()| Outcome::done()),
        Called::Wait { after } => {
            write(ctx, object, &said, None, None).await?;
            Ok(Outcome::requeue_after(decision.requeue_after.map_or(after, |next| next.min(after))))
        }
        Called::Done | Called::Changed | Called::Failed { .. } => {
            write(ctx, object, &said, None, None).await?;
            Ok(Outcome::now())
        }
    }
}

/// Creates the VM if there is room and everything that the spec names exists. Ids that the driver reserves are stored before they are used.
async fn create(ctx: &Context, object: &WindowsMachine, vm: &Vm<'_>, observed: &Observed) -> Result<Called, Failure> {
    let Goal::Run { spec, secret } = &vm.target.goal else { return Ok(Called::Done) };
    let namespace = object.namespace().unwrap_or_default();
    let mut unreadable = ctx.caches.windows_machines.unreadable(&namespace);
    unreadable.retain(|machine| annotated(machine) == Some(&vm.place.name));
    let machines = ctx.caches.windows_machines.all(&namespace);
    let there = machines.iter().filter(|machine| is_used_by(vm.hypervisor, machine)).map(|machine| &**machine);
    room(vm.hypervisor.spec.limits.as_ref(), there, &unreadable, object).map_err(DriverError::Capacity)?;
    let seed = seed(ctx, object, vm, spec, secret).await?;
    vm.driver.check(spec, seed.kind()).await?;
    let planned = vm.driver.plan(&vm.target.key, spec, &vm.journal).await?;
    if planned != vm.journal {
        return Ok(Called::Started { journal: planned });
    }
    advance(ctx, object, vm, observed).await
}

async fn advance(ctx: &Context, object: &WindowsMachine, vm: &Vm<'_>, observed: &Observed) -> Result<Called, Failure> {
    let Goal::Run { spec, secret } = &vm.target.goal else { return Ok(Called::Done) };
    let seed = seed(ctx, object, vm, spec, secret).await?;
    Ok(vm.driver.advance(&vm.target.key, spec, &seed, &vm.journal, observed).await?)
}

async fn seed(ctx: &Context, object: &WindowsMachine, vm: &Vm<'_>, spec: &VmSpec, secret: &str) -> Result<Arc<Seed>, Failure> {
    seed::of_secret(ctx, object, vm.target, &spec.host_name, secret).await.map_err(|error| match error {
        seed::SeedError::Secret(message) => Failure::Secret(message),
        seed::SeedError::Api(error) => Failure::Reconcile(error.into()),
    })
}

/// Reports a failed call, or returns the error for the back-off.
pub async fn driver_failed(ctx: &Context, object: &WindowsMachine, target: &Target, error: &DriverError) -> Result<Outcome, ReconcileError> {
    match failures::after(ctx, object, target, error) {
        AfterFailure::Report(decision) => report_status(ctx, object, &decision, None).await,
        AfterFailure::TryAgain(after) => Ok(Outcome::requeue_after(after)),
        AfterFailure::BackOffAndReport(said) => {
            write(ctx, object, &said, None, None).await?;
            Err(ReconcileError::Driver(error.clone()))
        }
        AfterFailure::BackOff => Err(ReconcileError::Driver(error.clone())),
    }
}

/// Stores the finalizer, the chosen hypervisor and the cluster that the owner mark will name, in one write.
pub async fn adopt(ctx: &Context, object: &WindowsMachine, hypervisor: &str) -> Result<Outcome, ReconcileError> {
    ctx.management.adopt(object, FINALIZER, json!(adoption(&object.metadata, hypervisor))).await?;
    Ok(Outcome::done())
}

pub async fn release(ctx: &Context, object: &WindowsMachine) -> Result<Outcome, ReconcileError> {
    ctx.management.remove_finalizer(object, FINALIZER).await?;
    ctx.deletions.forget(&object.uid().unwrap_or_default());
    tracing::info!("nothing is left of the VM: released");
    Ok(Outcome::done())
}
