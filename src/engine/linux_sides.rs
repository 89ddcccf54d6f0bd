//! The objects in clusters that a WindowsCluster reports on, as one watch for each kind that the last pass has read delivers them. Reading them costs
//! no request.

use std::collections::HashMap;
use std::sync::Arc;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::shown::Shown;
use super::watch_task::WatchTask;
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::ClusterRef;
use crate::kube_api::linux_side::Watched;
use crate::kube_api::workload::{Workload, WorkloadError};

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
    /// Watches exactly these kinds of a cluster. A watch that runs with this kubeconfig continues. `passes` spawns the task that requests the passes,
    /// `follow` the task of a watch.
    pub(super) fn watch(
        &self,
        cluster: &ClusterRef,
        workload: &Workload,
        what: &LinuxSide,
        passes: impl FnOnce(Arc<Notify>) -> AbortHandle,
        follow: impl Fn(Workload, Watched, Arc<Mutex<Shown>>, Arc<Notify>) -> AbortHandle,
    ) {
        let LinuxSide { object, watched } = what;
        let mut all = self.0.lock();
        let new = || Followed { object: object.clone(), watches: HashMap::new(), news: Arc::default(), passes: WatchTask::default() };
        let followed = all.entry(cluster.clone()).or_insert_with(new);
        if followed.object != *object {
            *followed = new();
        }
        followed.passes.start(workload, |_| passes(followed.news.clone()));
        followed.watches.retain(|known, _| watched.contains(known));
        for watched in watched {
            let following = followed.watches.entry(watched.clone()).or_default();
            following.watch.start(workload, |workload| {
                // The objects of another kubeconfig may belong to another cluster.
                following.shown = Arc::default();
                follow(workload, watched.clone(), following.shown.clone(), followed.news.clone())
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
