//! Nodes of a workload cluster: read, changed, deleted, watched. Other modules interpret them.

use futures::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::cluster::{FIELD_MANAGER, set};
use super::csr::failed;
use super::error::ApiError;
use super::kept::within;
use super::watches;
use super::workload::{Workload, WorkloadError};

impl Workload {
    /// Returns the Node of that name.
    pub async fn node(&self, name: &str) -> Result<Option<Node>, WorkloadError> {
        self.call(&format!("get nodes {name}"), Api::<Node>::all(self.client.clone()).get_opt(name)).await
    }

    /// Deletes the Node of that name if it has that provider ID, and exactly the Node that was read.
    pub async fn delete_node(&self, name: &str, provider_id: &str) -> Result<(), WorkloadError> {
        self.delete_node_if(name, |id| id == provider_id).await
    }

    /// Deletes the Node of that name if `is_meant` accepts its provider ID, and exactly the Node that was read.
    pub async fn delete_node_if(&self, name: &str, is_meant: impl Fn(&str) -> bool) -> Result<(), WorkloadError> {
        let Some(node) = self.node(name).await? else { return Ok(()) };
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        if provider_id.is_some_and(is_meant) { self.delete_read_node(&node).await } else { Ok(()) }
    }

    /// Deletes exactly the Node that was read. A deleted Node is no error.
    pub async fn delete_read_node(&self, node: &Node) -> Result<(), WorkloadError> {
        let name = node.name_any();
        let preconditions = Preconditions { uid: node.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match self.call(&format!("delete nodes {name}"), Api::<Node>::all(self.client.clone()).delete(&name, &parameters)).await {
            Ok(_) | Err(WorkloadError::Api(ApiError::NotFound(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the Nodes whose provider ID `is_meant` accepts.
    pub async fn nodes_with(&self, is_meant: impl Fn(&str) -> bool) -> Result<Vec<Node>, WorkloadError> {
        let is_meant = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).is_some_and(&is_meant);
        let nodes = Api::<Node>::all(self.client.clone());
        self.pages("list nodes", nodes, ListParams::default()).keep(|node| is_meant(&node).then_some(node)).await
    }

    /// Merges a patch into the current Node of that name; a write in between is a conflict. `change` returns `None` if no patch is needed.
    pub async fn change_node(&self, name: &str, change: impl Fn(&Node) -> Option<Value>) -> Result<(), WorkloadError> {
        let Some(node) = self.node(name).await? else { return Ok(()) };
        let Some(patch) = change(&node) else { return Ok(()) };
        self.change_read_node(&node, patch).await
    }

    /// Merges a patch into exactly the Node that was read; a write in between is a conflict.
    pub async fn change_read_node(&self, node: &Node, mut patch: Value) -> Result<(), WorkloadError> {
        let name = node.name_any();
        set(&mut patch, "uid", json!(&node.metadata.uid));
        set(&mut patch, "resourceVersion", json!(&node.metadata.resource_version));
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let call = Api::<Node>::all(self.client.clone());
        self.call(&format!("patch nodes {name}"), call.patch(&name, &parameters, &Patch::Merge(&patch))).await.map(drop)
    }
}

/// Streams Windows Nodes: the existing ones, and every change. The stream has its own back-off; it returns errors so that they can be counted and
/// logged. It ends when the Nodes exceed the limit for kept objects.
pub fn events(workload: &Workload) -> impl Stream<Item = Result<watcher::Event<Node>, WorkloadError>> + Send + use<> {
    let windows = watches::settings().labels("kubernetes.io/os=windows");
    let endpoint = workload.clone();
    let api: Api<Node> = Api::all(workload.client.clone());
    let events = watcher(api, windows).default_backoff().map_err(move |error| endpoint.explain(failed("watch nodes", error)));
    within(workload, "watch nodes", events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_api::mock::{Script, step};

    /// Between the two requests, another kubelet may have registered a Node of that name, or another client may have written it.
    #[tokio::test]
    async fn a_node_is_changed_or_deleted_as_it_was_read() {
        let node = json!({"metadata": {"name": "win-1", "uid": "n", "resourceVersion": "7"}, "spec": {"providerID": "windows://h/1"}});
        let request = |verb: &str| step(&format!("{verb} /api/v1/nodes/win-1"), node.clone());
        let (client, script) = Script::new(["GET", "DELETE", "GET", "GET", "PATCH"].map(request).into());
        let workload = Workload::of(client);
        workload.delete_node("win-1", "windows://h/1").await.unwrap();
        workload.delete_node("win-1", "windows://h/2").await.unwrap();
        workload.change_node("win-1", |_| Some(json!({"spec": {"unschedulable": true}}))).await.unwrap();
        let seen = script.seen();
        assert_eq!(seen[1].body["preconditions"], json!({"uid": "n"}));
        assert_eq!(seen[4].body["metadata"], json!({"uid": "n", "resourceVersion": "7"}));
    }
}
