//! The watches of the objects in clusters that a WindowsCluster reports on. A change that may alter the result triggers a pass.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::DefaultBackoff;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::linux_sides::LinuxSide;
use super::shown::Shown;
use super::workload_clusters::WorkloadClusters;
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::kube_api::linux_side::{Watched, changes, is_unserved};
use crate::kube_api::workload::{Workload, WorkloadError};

/// The time from the first change to the pass. Changes come in groups, for example when a manifest is applied.
const SETTLE: Duration = Duration::from_secs(1);

impl WorkloadClusters {
    /// Watches these kinds of the cluster from now on: a change triggers a pass of the WindowsCluster.
    pub fn watch_linux_side(&self, cluster: &ClusterRef, workload: &Workload, what: &LinuxSide) {
        let passes = |news| self.spawn(passes(self.clone(), what.object.clone(), news));
        let follow = |workload, watched, shown, news| self.spawn(follow(self.clone(), cluster.clone(), workload, watched, shown, news));
        self.linux_sides().watch(cluster, workload, what, passes, follow);
    }
}

/// Requests a pass after each change, until the task is aborted.
async fn passes(clusters: WorkloadClusters, object: ObjectRef<WindowsCluster>, news: Arc<Notify>) {
    loop {
        news.notified().await;
        sleep(SETTLE).await;
        // The same pass reads changes that arrived during the delay.
        let _ = news.notified().now_or_never();
        clusters.context().requests.windows_cluster(object.clone());
    }
}

/// Stores the events of a watch, until the task is aborted. A failed watch restarts after a back-off. A refused watch restarts once the kubeconfig
/// has the right: its listing before that would be useless.
async fn follow(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload, watched: Watched, shown: Arc<Mutex<Shown>>, news: Arc<Notify>) {
    for pause in DefaultBackoff::default() {
        if shown.lock().is_refused() {
            // Without an answer the right is treated as missing: the pass has reported the missing right, and keeps reporting it.
            if !matches!(workload.may_watch(&watched).await, Ok(true)) {
                sleep(pause).await;
                continue;
            }
            shown.lock().allow();
            news.notify_one();
        }
        let Some(error) = take_in(&workload, &watched, &shown, &news).await else { return };
        if shown.lock().fail(&error) {
            news.notify_one();
        }
        if !is_unserved(&error) {
            tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "pod network: {error}");
            clusters.note_error(&cluster, &error).await;
        }
        sleep(pause).await;
    }
}

/// Stores the events of a watch until it fails.
async fn take_in(workload: &Workload, watched: &Watched, shown: &Mutex<Shown>, news: &Notify) -> Option<WorkloadError> {
    let mut events = changes(workload, watched);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if shown.lock().note(watched.listing(), event) {
                    news.notify_one();
                }
            }
            Err(error) => return Some(error),
        }
    }
    None
}
