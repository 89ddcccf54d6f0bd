//! Completes the Node of a machine that Cluster API core does not complete.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::context::Context;
use super::decide::completion::completion;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::kube_api::workload::WorkloadError;

/// Completes the Node of a standalone pool's machine, as Cluster API does for other machines. Sends no request if the Node is complete.
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
