//! What comes before the end of the VM of a machine that stands alone: its Node goes. Under Cluster API, core sees to that.

use std::time::Duration;

use kube::ResourceExt;

use super::Context;
use super::bootstrap::reason_of;
use super::shell::ReconcileError;
use crate::api::machine::WindowsMachine;
use crate::api::name::ProviderId;
use crate::api::pool::joins;
use crate::cluster::workload::WorkloadError;
use crate::lifecycle::machine::{host_name, vm_uuid};

/// How far the farewell is.
pub enum Farewell {
    /// Nothing of the Node is left, or the machine is none that stands alone: the VM may go.
    Done,
    /// Look again after that time; a change of the Node wakes the machine earlier. The text says what is waited for.
    Wait { after: Duration, message: String },
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
            if reason_of(&error).is_none() {
                return Err(error.into());
            }
            let message = format!("the Node must go before the VM, and cannot: {error}");
            Ok(Farewell::Wait { after: MEND, message })
        }
    }
}

async fn step(ctx: &Context, object: &WindowsMachine, namespace: &str, joins: &str) -> Result<Farewell, WorkloadError> {
    let workload = ctx.joined(namespace, joins).await?;
    if !ctx.nodes.are_known(namespace, joins) {
        return Ok(Farewell::Wait { after: BEGINNING, message: "the Nodes of the cluster are being listed".into() });
    }
    let Some(node) = ctx.nodes.of(namespace, joins, vm_uuid(object)) else { return Ok(Farewell::Done) };
    // DRAIN: cordon and drain `node` here, one step for each pass, and return Wait until it is empty.
    let provider_id = node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).unwrap_or_default();
    workload.delete_node(&node.name_any(), provider_id).await?;
    Ok(Farewell::Wait { after: GOING, message: format!("Node {} is being removed", node.name_any()) })
}

/// The last word, when nothing is left of the VM: a Node that came while the watch was behind is not left alone.
pub async fn last_word(ctx: &Context, object: &WindowsMachine) -> Result<(), ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let (Some(joins), Ok(name)) = (joins(&object.metadata), host_name(object)) else { return Ok(()) };
    let vm = vm_uuid(object);
    let workload = match ctx.joined(&namespace, joins).await {
        Err(WorkloadError::KubeconfigMissing { .. }) => return Ok(()),
        other => other?,
    };
    workload.delete_node_if(name.as_str(), |id| ProviderId::parse(id).is_ok_and(|id| id.vm == vm)).await?;
    Ok(())
}
