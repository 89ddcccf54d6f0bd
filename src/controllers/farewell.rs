//! What comes before the end of the VM of a machine that stands alone: its Node is drained and goes. Under Cluster API, core sees to that.

use std::time::Duration;

use kube::ResourceExt;

use super::bootstrap::reason_of;
use super::shell::ReconcileError;
use super::{Context, drain};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::WindowsMachine;
use crate::api::name::ProviderId;
use crate::api::pool::joins;
use crate::cluster::workload::WorkloadError;
use crate::lifecycle::Decision;
use crate::lifecycle::machine::{host_name, vm_uuid};

/// How far the farewell is.
pub enum Farewell {
    /// Nothing of the Node is left, or the machine is none that stands alone: the VM may go.
    Done,
    /// What is said meanwhile, and when to look again; a change of the Node wakes the machine earlier.
    Wait(Decision<()>),
}

/// A Node that was deleted is gone with the next word of the watch.
const GOING: Duration = Duration::from_secs(5);
/// What a person can mend outside the cluster is looked at again after that time.
const MEND: Duration = Duration::from_secs(10);
/// The watch of the Nodes begins.
const BEGINNING: Duration = Duration::from_secs(1);

/// One step of it. Called at every pass of a machine that is being deleted, before its hypervisor is asked for anything.
pub async fn farewell(ctx: &Context, object: &WindowsMachine) -> Result<Farewell, ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let Some(joins) = joins(&object.metadata) else { return Ok(Farewell::Done) };
    match step(ctx, object, &namespace, joins).await {
        Ok(farewell) => Ok(farewell),
        Err(error @ WorkloadError::KubeconfigMissing { .. }) => {
            tracing::warn!(joins, "the Node is left to itself: {error}");
            Ok(Farewell::Done)
        }
        Err(error) => {
            ctx.workloads.doubt(&namespace, joins, &error).await;
            if drain::is_over(ctx, object) {
                tracing::warn!(joins, "nobody waits for the Node any longer: {error}");
                return Ok(Farewell::Done);
            }
            if reason_of(&error).is_none() {
                return Err(error.into());
            }
            Ok(wait(MEND, format!("the Node must go before the VM, and cannot: {error}")))
        }
    }
}

async fn step(ctx: &Context, object: &WindowsMachine, namespace: &str, joins: &str) -> Result<Farewell, WorkloadError> {
    let workload = ctx.joined(namespace, joins).await?;
    if !ctx.nodes.are_known(namespace, joins) {
        return Ok(wait(BEGINNING, "the Nodes of the cluster are being listed".into()));
    }
    let Some(node) = ctx.nodes.of(namespace, joins, vm_uuid(object)) else { return Ok(Farewell::Done) };
    if let Some(decision) = drain::drain(ctx, object, &workload, &node).await? {
        return Ok(Farewell::Wait(decision));
    }
    let provider_id = node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).unwrap_or_default();
    workload.delete_node(&node.name_any(), provider_id).await?;
    Ok(wait(GOING, format!("Node {} is being removed", node.name_any())))
}

fn wait(after: Duration, message: String) -> Farewell {
    Farewell::Wait(Decision::new(()).say(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message)).look_again(after))
}

/// The last word, when nothing is left of the VM: a Node that came while the watch was behind is not left alone.
pub async fn last_word(ctx: &Context, object: &WindowsMachine) -> Result<(), ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let (Some(joins), Ok(name)) = (joins(&object.metadata), host_name(object)) else { return Ok(()) };
    let vm = vm_uuid(object);
    let forget = async || {
        let workload = ctx.joined(&namespace, joins).await?;
        workload.delete_node_if(name.as_str(), |id| ProviderId::parse(id).is_ok_and(|id| id.vm == vm)).await
    };
    match forget().await {
        Err(WorkloadError::KubeconfigMissing { .. }) => Ok(()),
        Err(error) if drain::is_over(ctx, object) => {
            tracing::warn!(joins, "whether the Node is gone is not known: {error}");
            Ok(())
        }
        other => Ok(other?),
    }
}
