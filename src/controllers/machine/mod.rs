//! WindowsMachine: observe, decide ([`crate::lifecycle::machine`], [`crate::lifecycle::machine::vm`]), act, report.
//!
//! A pass may complete the Node, then makes at most one call of the driver that changes the VM, or takes one step of the node teardown, and then
//! writes the object once: its metadata, its provider ID or its status. What the hypervisor reserved is stored before it is used. The
//! last pass deletes a Node that is left before it removes the finalizer.

mod act;
mod drain;
mod endings;
mod failures;
mod node_teardown;
mod seed;
mod triggers;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

pub use self::endings::Endings;
pub use self::failures::Failures;
pub use self::seed::Seeds;
pub use self::triggers::triggers;
use super::hypervisor::Hypervisors;
use super::runtime::caches::Caches;
use super::runtime::made_secrets::MadeSecrets;
use super::runtime::management::Management;
use super::runtime::outcome::{Outcome, ReconcileError};
use super::runtime::owners::Owners;
use super::runtime::workload_clusters::WorkloadClusters;
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::Desired;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::lifecycle::Decision;
use crate::lifecycle::machine::vm::{self, ObservedVm};
use crate::lifecycle::machine::{self, MachineStep, ObservedMachine, Target, report};
use crate::lifecycle::owner::{Owner, TargetCluster};
use crate::vm::{Journal, Present};

const MANAGER: &str = "capw-windowsmachine";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub owners: Owners,
    pub clusters: WorkloadClusters,
    pub hypervisors: Hypervisors,
    pub made_secrets: Arc<MadeSecrets>,
    pub seeds: Arc<Seeds>,
    pub failures: Arc<Failures>,
    pub endings: Arc<Endings>,
}

pub async fn reconcile(object: Arc<WindowsMachine>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let (ctx, object) = (&ctx, &*object);
    let namespace = object.namespace().unwrap_or_default();
    let owner = ctx.owners.of_machine(object);
    let cluster = ClusterRef::of(&object.metadata);
    let cluster = match ctx.owners.missing_cluster(&ctx.management, &object.metadata, cluster.as_ref()).await? {
        Some(cluster) => Some(TargetCluster::of_cluster(&cluster, None)),
        None => cluster.and_then(|cluster| ctx.caches.target_cluster(cluster, None)),
    };
    let hypervisors = ctx.caches.hypervisors.names(&namespace);
    let reach = |name: &str| ctx.hypervisors.reach(&namespace, name);
    let twin = ctx.caches.first_with_the_vm_of(object);
    let observed =
        ObservedMachine { object, owner: &owner, cluster: cluster.as_ref(), hypervisors: &hypervisors, reach: &reach, twin: twin.as_ref() };
    let decision = machine::decide(&observed, ctx.management.now());
    match &decision.step {
        MachineStep::Ignore => Ok(Outcome::done()),
        MachineStep::Wait => report_status(ctx, object, &decision, None).await,
        MachineStep::Adopt { hypervisor } => act::adopt(ctx, object, hypervisor).await,
        MachineStep::Release => act::release(ctx, object).await,
        MachineStep::Remove(target) => match node_teardown::tear_down(ctx, object).await? {
            Some(waiting) => report_status(ctx, object, &waiting, None).await,
            None => ask_hypervisor(ctx, object, &owner, target).await,
        },
        MachineStep::Run(target) => {
            act::complete_node(ctx, object).await?;
            ask_hypervisor(ctx, object, &owner, target).await
        }
    }
}

/// Observes the VM, decides, and makes one call.
async fn ask_hypervisor(ctx: &Context, object: &WindowsMachine, owner: &Owner, target: &Target) -> Result<Outcome, ReconcileError> {
    let Some((hypervisor, driver)) = ctx.hypervisors.connected(&object.namespace().unwrap_or_default(), &target.hypervisor) else {
        return Ok(Outcome::requeue_after(Duration::from_secs(1)));
    };
    let place = ObjectKey::of(&hypervisor.metadata);
    let vm = act::Vm { driver: &*driver, hypervisor: &hypervisor, place: &place, target, journal: vm::journal(object) };
    let (observed, _kept) = match act::observe(ctx, object, &vm).await {
        Ok(observed) => observed,
        Err(error) => return act::driver_failed(ctx, object, target, &error).await,
    };
    let stop = Duration::from_secs(u64::try_from(hypervisor.spec.stop_seconds).unwrap_or_default());
    let decision = vm::decide(&ObservedVm { object, owner, target, observed: &observed, stop }, ctx.management.now());
    act::carry_out(ctx, object, &vm, &observed, &decision).await
}

/// Reports a decision. The write triggers the next pass.
async fn report_status<S>(
    ctx: &Context,
    object: &WindowsMachine,
    decision: &Decision<S>,
    present: Option<&Present>,
) -> Result<Outcome, ReconcileError> {
    write(ctx, object, &decision.conditions, present, None).await?;
    Ok(Outcome::of(decision.requeue_after))
}

/// Writes conditions, what is seen and what is reserved, if that differs from what is stored.
async fn write(
    ctx: &Context,
    object: &WindowsMachine,
    said: &[Desired],
    present: Option<&Present>,
    journal: Option<Journal>,
) -> Result<(), ReconcileError> {
    let next = report::status(object, said, present, journal, ctx.management.now());
    Ok(ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?)
}

#[cfg(test)]
mod tests;
