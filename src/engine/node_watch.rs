//! The watches of the Nodes of standalone pools: one per workload cluster. A Node that changes triggers a pass of its machine, its configuration and
//! its pool.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::Event;

use super::workload_clusters::WorkloadClusters;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::domain::identity::host_name;
use crate::kube_api::nodes::events;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The delay before a cluster that may be another one is checked again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

impl WorkloadClusters {
    /// Returns the client of the cluster of a standalone pool, and watches its Nodes from now on.
    pub async fn get_with_nodes(&self, cluster: &ClusterRef) -> Result<Arc<Workload>, WorkloadError> {
        let workload = self.get(cluster).await?;
        let spawn = |workload| self.spawn(follow(self.clone(), cluster.clone(), workload));
        self.nodes().watch(cluster, &workload, spawn);
        Ok(workload)
    }
}

/// Follows the Nodes of one workload cluster until the task is aborted.
async fn follow(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload) {
    loop {
        if let Err(error) = follow_one_cluster(&clusters, &cluster, &workload).await {
            failed(&clusters, &cluster, &error).await;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Follows the Nodes until a listing may belong to another cluster. The known Nodes are kept then.
async fn follow_one_cluster(clusters: &WorkloadClusters, cluster: &ClusterRef, workload: &Workload) -> Result<(), WorkloadError> {
    let context = clusters.context();
    let mut events = std::pin::pin!(events(workload));
    while let Some(next) = events.next().await {
        match next {
            Ok(event) => {
                // Before the first listing, the cluster's identity was checked when its client was created.
                if matches!(event, Event::InitDone) && context.nodes.are_known(cluster) {
                    clusters.confirm_again(cluster, workload).await?;
                }
                let complete = matches!(event, Event::InitDone);
                for node in &context.nodes.note(cluster, event, context.management.now()) {
                    request_passes(clusters, &cluster.namespace, node);
                }
                if complete {
                    context.requests.all_of(&context.caches, cluster);
                }
            }
            Err(error) => failed(clusters, cluster, &error).await,
        }
    }
    Ok(())
}

async fn failed(clusters: &WorkloadClusters, cluster: &ClusterRef, error: &WorkloadError) {
    tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "nodes: {error}");
    clusters.context().nodes.fail(cluster, error);
    clusters.note_error(cluster, error).await;
}

/// Requests passes of the objects that a Node concerns. The Node has the name of its machine's object, unless that is no host name.
fn request_passes(clusters: &WorkloadClusters, namespace: &str, node: &str) {
    let context = clusters.context();
    let is_its_machine = |machine: &Arc<WindowsMachine>| host_name(machine).is_ok_and(|name| name.as_str() == node);
    let by_name = context.caches.windows_machines.get(namespace, node).filter(is_its_machine);
    let Some(machine) = by_name.or_else(|| context.caches.windows_machines.all(namespace).into_iter().find(is_its_machine)) else { return };
    context.requests.machine(&machine);
    context.requests.pool_of(&machine);
    if let Some(config) = context.caches.config_of(&machine) {
        context.requests.config(&config);
    }
}
