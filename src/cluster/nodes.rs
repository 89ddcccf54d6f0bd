//! Nodes of a workload cluster: the watch. What they mean is decided elsewhere.

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};

use super::csr::failed;
use super::workload::{Workload, WorkloadError};

/// Windows Nodes: those that exist, and every change of one. The stream has its own back-off and never ends; its errors are there to
/// be counted and logged.
pub fn events(workload: &Workload) -> impl Stream<Item = Result<watcher::Event<Node>, WorkloadError>> + Send + use<> {
    let windows = watcher::Config::default().labels("kubernetes.io/os=windows");
    let endpoint = workload.clone();
    let api: Api<Node> = Api::all(workload.client.clone());
    watcher(api, windows).default_backoff().map_err(move |error| endpoint.explain(failed("watch nodes", error))).boxed()
}
