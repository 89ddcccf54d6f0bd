//! Questions that an API server answers once per kubeconfig, for all passes that need the answer. No pass waits for the answer: a task sends the
//! question, and a new answer triggers the passes of the cluster.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::cluster_ref::ClusterRef;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The time from a failure until the API server is queried again.
pub const AGAIN: Duration = Duration::from_secs(5);

/// The answers to one question, by cluster.
pub struct Answers<T> {
    all: Mutex<HashMap<ClusterRef, Answer<T>>>,
    changed: Notify,
}

struct Answer<T> {
    /// The fingerprint of the kubeconfig.
    fingerprint: String,
    state: State<T>,
}

enum State<T> {
    /// The previous failure stays valid until the answer arrives.
    Asking(Option<WorkloadError>),
    Known(T),
    Failed {
        error: WorkloadError,
        since: Instant,
    },
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self { all: Mutex::default(), changed: Notify::new() }
    }
}

impl<T: Clone> Answers<T> {
    /// Returns the known answer for a cluster. If the question is due, the callback must send it and pass the answer to [`Answers::note`].
    pub fn get(&self, cluster: &ClusterRef, workload: &Workload, ask: impl FnOnce()) -> Result<T, WorkloadError> {
        let mut all = self.all.lock();
        let waits = |before: Option<&WorkloadError>| before.cloned().unwrap_or_else(|| WorkloadError::NotReached { cluster: cluster.words() });
        let before = match all.get(cluster).filter(|answer| answer.fingerprint == workload.fingerprint).map(|answer| &answer.state) {
            Some(State::Known(answer)) => return Ok(answer.clone()),
            Some(State::Asking(before)) => return Err(waits(before.as_ref())),
            Some(State::Failed { error, since }) if since.elapsed() < AGAIN => return Err(error.clone()),
            Some(State::Failed { error, .. }) => Some(error.clone()),
            None => None,
        };
        let error = waits(before.as_ref());
        all.insert(cluster.clone(), Answer { fingerprint: workload.fingerprint.clone(), state: State::Asking(before) });
        ask();
        Err(error)
    }

    /// Stores an answer. Returns `true` if it differs from the previous one.
    pub fn note(&self, cluster: &ClusterRef, workload: &Workload, answer: Result<T, WorkloadError>) -> bool {
        let is_news = {
            let mut all = self.all.lock();
            // An answer that no pass awaits any more, or that belongs to another kubeconfig, is ignored.
            let Some(known) = all.get_mut(cluster).filter(|known| known.fingerprint == workload.fingerprint) else { return false };
            let is_known = matches!((&known.state, &answer), (State::Asking(Some(before)), Err(error)) if before == error);
            known.state = match answer {
                Ok(answer) => State::Known(answer),
                Err(error) => State::Failed { error, since: Instant::now() },
            };
            !is_known
        };
        self.changed.notify_waiters();
        is_news
    }

    /// Returns the answer as soon as it exists. `get` sends the question.
    pub async fn wait<A>(&self, get: impl Fn() -> Result<A, WorkloadError>) -> Result<A, WorkloadError> {
        loop {
            let changed = self.changed.notified();
            match get() {
                Err(error) if error.is_pending() => changed.await,
                known => return known,
            }
        }
    }

    pub fn known(&self, cluster: &ClusterRef) -> Option<T> {
        match &self.all.lock().get(cluster)?.state {
            State::Known(answer) => Some(answer.clone()),
            State::Asking(_) | State::Failed { .. } => None,
        }
    }

    /// Forgets the answer, so that the next pass that needs it sends the question again.
    pub fn forget(&self, cluster: &ClusterRef) {
        self.all.lock().remove(cluster);
    }
}
