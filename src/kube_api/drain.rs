//! The requests that empty a Node of a workload cluster. Other modules decide when they are sent, and for which pods.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::Status;
use serde_json::json;

use super::error::ApiError;
use super::workload::{Workload, WorkloadError};

/// The API server's answer to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The pod terminates now, within its grace period.
    Told,
    /// The pod was deleted already, or another pod has its name now.
    Gone,
    /// The API server refused the eviction; with its message, which contains the name of the budget if one is the cause.
    Refused(String),
}

impl Workload {
    /// Cordons exactly the Node that was read. A deleted Node is no error.
    pub async fn cordon(&self, node: &Node) -> Result<(), WorkloadError> {
        match self.change_read_node(node, json!({ "spec": { "unschedulable": true } })).await {
            Err(WorkloadError::Api(ApiError::NotFound(_))) => Ok(()),
            done => done,
        }
    }

    /// Evicts exactly that pod, as its PodDisruptionBudgets allow. `grace`, in seconds, overrides the pod's own grace period.
    pub async fn evict(&self, namespace: &str, name: &str, uid: &str, grace: Option<u32>) -> Result<Evicted, WorkloadError> {
        // kube's own `evict` sends `delete_options`, which the API server ignores: any pod of that name would be evicted.
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": namespace }, "deleteOptions": exactly(uid, grace) });
        let (api, parameters) = (Api::<Pod>::namespaced(self.client.clone(), namespace), PostParams::default());
        let call = async {
            match api.create_subresource::<_, Status>("eviction", name, &parameters, &eviction).await {
                Ok(_) => Ok(Evicted::Told),
                Err(kube::Error::Api(status)) => judge(&status).ok_or(kube::Error::Api(status)),
                Err(error) => Err(error),
            }
        };
        self.call(&format!("evict pods {namespace}/{name}"), call).await
    }

    /// Deletes exactly that pod from the API server at once, whatever its containers do. A deleted pod is no error.
    pub async fn delete_pod_by_force(&self, namespace: &str, name: &str, uid: &str) -> Result<(), WorkloadError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match self.call(&format!("delete pods {namespace}/{name}"), api.delete(name, &exactly(uid, Some(0)))).await {
            Ok(_) | Err(WorkloadError::Api(ApiError::NotFound(_) | ApiError::Conflict(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn exactly(uid: &str, grace: Option<u32>) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { grace_period_seconds: grace, preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Returns what an error status means for the pod; `None` if it is about us or the API server.
fn judge(status: &Status) -> Option<Evicted> {
    let details = status.details.as_ref();
    let causes = details.map(|d| d.causes.as_slice()).unwrap_or_default();
    let of_webhook = status.message.contains("admission webhook");
    let terminating = causes.iter().any(|c| c.reason == "NamespaceTerminating");
    match status.code {
        404 | 409 => Some(Evicted::Gone),
        // 429: a budget; 500: more than one budget for the same pod.
        429 | 500 => {
            let told: Vec<&str> = [status.message.as_str()].into_iter().chain(causes.iter().map(|c| c.message.as_str())).collect();
            Some(Evicted::Refused(told.join(" ").trim().to_owned()))
        }
        403 if terminating => Some(Evicted::Refused("its namespace is being deleted: kube-controller-manager will delete it".into())),
        _ if of_webhook => Some(Evicted::Refused(status.message.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
