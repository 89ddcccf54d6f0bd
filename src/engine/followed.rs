//! The certificate requests of workload clusters: the watch of each cluster, and the known facts about its requests for one signer.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::watch_task::WatchTask;
use crate::api::cluster_ref::ClusterRef;
use crate::kube_api::workload::Workload;

/// The followed requests, by workload cluster. `K` holds the known facts about a cluster's requests.
#[derive(Default)]
pub struct Followed<K>(Mutex<HashMap<ClusterRef, Requests<K>>>);

/// The requests for serving certificates: the names of refused requests, so that each is reported once.
pub type ServingCertificates = Followed<HashSet<String>>;

#[derive(Default)]
struct Requests<K> {
    watch: WatchTask,
    /// When the oldest undecided request of one of our machines was created.
    oldest: Option<Timestamp>,
    known: K,
}

impl<K: Default> Followed<K> {
    /// Returns when the oldest undecided request of one of our machines was created.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.0.lock().values().filter_map(|requests| requests.oldest).min()
    }

    pub fn tell_oldest(&self, cluster: &ClusterRef, oldest: Option<Timestamp>) {
        if let Some(requests) = self.0.lock().get_mut(cluster) {
            requests.oldest = oldest;
        }
    }

    pub fn is_watching(&self, cluster: &ClusterRef) -> bool {
        self.0.lock().get(cluster).is_some_and(|requests| requests.watch.is_running())
    }

    /// Watches a cluster, unless a watch with this kubeconfig runs already.
    pub fn watch(&self, cluster: &ClusterRef, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        self.0.lock().entry(cluster.clone()).or_default().watch.start(workload, spawn);
    }

    pub fn forget(&self, cluster: &ClusterRef) {
        self.0.lock().remove(cluster);
    }

    pub fn note<T>(&self, cluster: &ClusterRef, change: impl FnOnce(&mut K) -> T) -> T {
        change(&mut self.0.lock().entry(cluster.clone()).or_default().known)
    }

    /// Reads the known facts about a cluster. `None`: the cluster is not followed.
    pub fn known<T>(&self, cluster: &ClusterRef, ask: impl FnOnce(&mut K) -> T) -> Option<T> {
        self.0.lock().get_mut(cluster).map(|requests| ask(&mut requests.known))
    }
}
