//! The pass for a WindowsMachine.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::context::{Context, report_status};
use super::decide::step::{MachineStep, ObservedMachine, Target, decide};
use super::decide::vm::{self, ObservedVm};
use super::{act, node_completion, node_teardown, observe};
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::domain::owner::{Owner, TargetCluster};
use crate::engine::outcome::{Outcome, ReconcileError};

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
    let decision = decide(&observed, ctx.management.now());
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
            node_completion::complete_node(ctx, object).await?;
            ask_hypervisor(ctx, object, &owner, target).await
        }
    }
}

/// Observes the VM, decides, and carries the decision out with at most one call that changes the VM.
async fn ask_hypervisor(ctx: &Context, object: &WindowsMachine, owner: &Owner, target: &Target) -> Result<Outcome, ReconcileError> {
    let Some((hypervisor, driver)) = ctx.hypervisors.connected(&object.namespace().unwrap_or_default(), &target.hypervisor) else {
        return Ok(Outcome::requeue_after(Duration::from_secs(1)));
    };
    let place = ObjectKey::of(&hypervisor.metadata);
    let vm = observe::Vm { driver: &*driver, hypervisor: &hypervisor, place: &place, target, journal: vm::journal(object) };
    let (observed, _kept) = match observe::observe(ctx, object, &vm).await {
        Ok(observed) => observed,
        Err(error) => return act::driver_failed(ctx, object, target, &error).await,
    };
    let stop = Duration::from_secs(u64::try_from(hypervisor.spec.stop_seconds).unwrap_or_default());
    let decision = vm::decide(&ObservedVm { object, owner, target, observed: &observed, stop }, ctx.management.now());
    act::carry_out(ctx, object, &vm, &observed, &decision).await
}

#[cfg(test)]
mod tests;
