//! What a pass does: the calls to the hypervisor, and the writes of the WindowsMachine and its Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;

use super::node_teardown::delete_left_node;
use super::{Context, failures, report_status, seed, write};
use crate::api::cluster_ref::ClusterRef;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{FINALIZER, WindowsMachine};
use crate::api::name::ObjectKey;
use crate::cluster::workload::WorkloadError;
use crate::controllers::runtime::outcome::{Outcome, ReconcileError};
use crate::hypervisor::{Driver, DriverError, DriverStep as Called, Kept};
use crate::lifecycle::Decision;
use crate::lifecycle::hypervisor::{is_used_by, room};
use crate::lifecycle::identity::{adoption, annotated, is_provisioned};
use crate::lifecycle::machine::driver_failure::{self, AfterFailure};
use crate::lifecycle::machine::vm::{self, VmStep};
use crate::lifecycle::machine::{Goal, Target};
use crate::lifecycle::node::completion::completion;
use crate::vm::{Journal, Observed, Present, Seed, Seeded, VmSpec};

/// One VM and the way to it.
pub struct Vm<'a> {
    pub driver: &'a dyn Driver,
    pub hypervisor: &'a WindowsHypervisor,
    /// Its key.
    pub place: &'a ObjectKey,
    pub target: &'a Target,
    pub journal: Journal,
}

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
        VmStep::Detach(present) => match vm.driver.detach(key, journal, observed).await {
            Ok(Called::Done | Called::Changed) => {
                // Until the next listing shows it.
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
                // Described again at the next look.
                ctx.hypervisors.drivers.admit(vm.place, None);
            }
            driver_failed(ctx, object, vm.target, &error).await
        }
        Err(Failure::Secret(message)) => report_status(ctx, object, &driver_failure::secret_unusable(message), None).await,
        Err(Failure::Reconcile(error)) => Err(error),
    }
}

/// Writes what a call has done: its journal and what is said in one write, since a second one would name a version of the object that is gone.
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

/// There must be room, what the spec names must exist, and ids that the driver reserves are stored before it uses them.
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

/// Reports a failed call, or leaves it to the back-off.
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

/// Stores finalizer, choice of hypervisor and the cluster that the owner mark will name, in one write.
pub async fn adopt(ctx: &Context, object: &WindowsMachine, hypervisor: &str) -> Result<Outcome, ReconcileError> {
    ctx.management.adopt(object, FINALIZER, json!(adoption(&object.metadata, hypervisor))).await?;
    Ok(Outcome::done())
}

pub async fn release(ctx: &Context, object: &WindowsMachine) -> Result<Outcome, ReconcileError> {
    ctx.management.remove_finalizer(object, FINALIZER).await?;
    tracing::info!("nothing is left of the VM: released");
    Ok(Outcome::done())
}

/// Completes the Node of a machine of a standalone pool, as Cluster API does for others. No request when it is complete.
pub async fn complete_node(ctx: &Context, object: &WindowsMachine) -> Result<(), WorkloadError> {
    let Some(cluster) = ClusterRef::standalone(&object.metadata) else { return Ok(()) };
    let Some(machine) = ctx.caches.node_of(object) else { return Ok(()) };
    let Some(node) = ctx.clusters.nodes().of(&cluster, &machine) else { return Ok(()) };
    if completion(object, &node).is_none() {
        return Ok(());
    }
    let workload = ctx.clusters.get_with_nodes(&cluster).await?;
    let is_the_same = |now: &Node| now.metadata.uid == node.metadata.uid && machine.is_of(now);
    workload.change_node(&node.name_any(), |now| completion(object, now).filter(|_| is_the_same(now))).await
}
