//! A watch of a workload cluster that runs for as long as its kubeconfig stays what it is.

use tokio::task::AbortHandle;

use crate::cluster::workload::Workload;

/// The task of the watch; it ends when this is dropped.
#[derive(Default)]
pub struct Follower(Option<Running>);

struct Running {
    /// Of the kubeconfig that it uses.
    fingerprint: String,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    pub fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(|running| !running.task.is_finished())
    }

    /// Starts it unless it runs with this very kubeconfig; one that runs with another ends.
    pub fn start(&mut self, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        if self.is_running() && self.0.as_ref().is_some_and(|running| running.fingerprint == workload.fingerprint) {
            return;
        }
        // The old one ends before the new one begins.
        self.0 = None;
        self.0 = Some(Running { fingerprint: workload.fingerprint.clone(), task: spawn(workload.clone()) });
    }
}
