//! The task of a watch of a workload cluster, which runs while the kubeconfig does not change.

use tokio::task::AbortHandle;

use crate::kube_api::workload::Workload;

/// The task, which ends when this value is dropped.
#[derive(Default)]
pub struct WatchTask(Option<Running>);

struct Running {
    /// The fingerprint of the kubeconfig that the task uses.
    fingerprint: String,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WatchTask {
    pub fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(|running| !running.task.is_finished())
    }

    pub fn is_running_with(&self, workload: &Workload) -> bool {
        self.is_running() && self.0.as_ref().is_some_and(|running| running.fingerprint == workload.fingerprint)
    }

    /// Starts the task, unless it runs with this kubeconfig. A task with another kubeconfig ends.
    pub fn start(&mut self, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        if self.is_running_with(workload) {
            return;
        }
        // The old task ends before the new one begins.
        self.0 = None;
        self.0 = Some(Running { fingerprint: workload.fingerprint.clone(), task: spawn(workload.clone()) });
    }
}
