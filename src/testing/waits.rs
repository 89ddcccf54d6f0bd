//! Waits for the answers of clusters.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use crate::api::cluster_ref::ClusterRef;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::workload_clusters::WorkloadClusters;

/// Runs a pass, and repeats it while it waits for an answer.
pub async fn with_answers(pass: impl AsyncFn() -> Result<Outcome, ReconcileError>) -> Result<Outcome, ReconcileError> {
    loop {
        match pass().await {
            // With a paused clock, time advances only while all tasks wait.
            Err(error) if error.is_pending() => sleep(Duration::from_millis(1)).await,
            ended => return ended,
        }
    }
}

/// Waits for the first answer of a cluster.
pub async fn reach(clusters: &WorkloadClusters, cluster: &ClusterRef) {
    while clusters.get(cluster).await.is_err_and(|error| error.is_pending()) {
        yield_now().await;
    }
}

/// Waits until the Nodes of a cluster are listed.
pub async fn list_nodes(clusters: &WorkloadClusters, cluster: &ClusterRef) {
    reach(clusters, cluster).await;
    clusters.get_with_nodes(cluster).await.unwrap();
    while !clusters.nodes().are_known(cluster) {
        yield_now().await;
    }
}
