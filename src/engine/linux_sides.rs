//! The objects in clusters that a WindowsCluster reports on: one watch for each kind that the last pass has read. Reading the objects that a watch
//! has delivered costs no request. A change that may alter the result triggers a pass.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::DefaultBackoff;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::shown::Shown;
use super::watch_task::WatchTask;
use super::workload_clusters::WorkloadClusters;
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::kube_api::linux_side::{Watched, changes, is_unserved};
use crate::kube_api::workload::{Workload, WorkloadError};

/// The time from the first change to the pass. Changes come in groups, for example when a manifest is applied.
const SETTLE: Duration = Duration::from_secs(1);

/// The watches, by cluster.
#[derive(Default)]
pub struct LinuxSides(Mutex<HashMap<ClusterRef, Followed>>);

struct Followed {
    object: ObjectRef<WindowsCluster>,
    watches: HashMap<Watched, Following>,
    /// Notified when a pass is necessary.
    news: Arc<Notify>,
    passes: WatchTask,
}

#[derive(Default)]
struct Following {
    watch: WatchTask,
    shown: Arc<Mutex<Shown>>,
}

/// The kinds to watch in a cluster, and the object that gets the passes.
pub struct LinuxSide {
    pub object: ObjectRef<WindowsCluster>,
    pub watched: Vec<Watched>,
}

impl LinuxSides {
    /// Watches exactly these kinds of a cluster. A watch that runs with this kubeconfig continues.
    pub(super) fn watch(&self, clusters: &WorkloadClusters, cluster: &ClusterRef, workload: &Workload, what: &LinuxSide) {
        let LinuxSide { object, watched } = what;
        let mut all = self.0.lock();
        let new = || Followed { object: object.clone(), watches: HashMap::new(), news: Arc::default(), passes: WatchTask::default() };
        let followed = all.entry(cluster.clone()).or_insert_with(new);
        if followed.object != *object {
            *followed = new();
        }
        followed.passes.start(workload, |_| clusters.spawn(passes(clusters.clone(), object.clone(), followed.news.clone())));
        followed.watches.retain(|known, _| watched.contains(known));
        for watched in watched {
            let following = followed.watches.entry(watched.clone()).or_default();
            following.watch.start(workload, |workload| {
                // The objects of another kubeconfig may belong to another cluster.
                following.shown = Arc::default();
                let (shown, news) = (following.shown.clone(), followed.news.clone());
                clusters.spawn(follow(clusters.clone(), cluster.clone(), workload, watched.clone(), shown, news))
            });
        }
    }

    /// Returns the objects of a watch with this kubeconfig. `None`: no watch runs, or it does not work. The inner `None`: the kind is not served.
    /// An error: the kubeconfig may not watch the kind.
    pub fn shown(&self, cluster: &ClusterRef, workload: &Workload, watched: &Watched) -> Result<Option<Option<Vec<Value>>>, WorkloadError> {
        let is_its = |following: &&Following| following.watch.is_running_with(workload);
        let shown = self.0.lock().get(cluster).and_then(|all| all.watches.get(watched)).filter(is_its).map(|following| following.shown.clone());
        shown.map_or(Ok(None), |shown| shown.lock().objects())
    }

    pub fn forget(&self, cluster: &ClusterRef) {
        self.0.lock().remove(cluster);
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
