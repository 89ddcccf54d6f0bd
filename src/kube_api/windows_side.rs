//! Reads, applies and removes the components that CAPW installs in a workload cluster for its Windows nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::core::Status;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::linux_side::named;
use super::workload::{Workload, WorkloadError};
use crate::api::components::COMPONENTS_MANAGER;
use crate::api::listing::Listing;

/// How to apply an object if another field manager has set one of its fields to another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// The existing object stays unchanged.
    Yield,
    /// The applied object overrides the field.
    Override,
}

/// A field that another field manager has set to another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub field: String,
    pub manager: String,
}

/// A pod with only the RuntimeClass that it uses.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct PodOfClass {
    #[serde(skip)]
    metadata: ObjectMeta,
    spec: Option<PodSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    runtime_class_name: Option<String>,
}

impl Workload {
    /// Returns the object of that name; `None` if it does not exist or the API server does not serve its kind.
    pub async fn object(&self, of: &Listing, namespace: Option<&str>, name: &str) -> Result<Option<Value>, WorkloadError> {
        let what = format!("get {}", named(of, namespace, name));
        match self.call(&what, self.api(of, namespace).get_opt(name)).await {
            Ok(found) => Ok(found.and_then(|object| serde_json::to_value(object).ok())),
            Err(WorkloadError::Api(ApiError::NotServed(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object under the field manager [`COMPONENTS_MANAGER`], and returns the fields that prevented it.
    pub async fn apply_object(
        &self,
        of: &Listing,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
        apply: Apply,
    ) -> Result<Vec<Held>, WorkloadError> {
        let what = format!("patch {}", named(of, namespace, name));
        let parameters = PatchParams { force: apply == Apply::Override, ..PatchParams::apply(COMPONENTS_MANAGER) };
        let api = self.api(of, namespace);
        let answer = async {
            match api.patch(name, &parameters, &Patch::Apply(object)).await {
                Err(kube::Error::Api(status)) if !held(&status).is_empty() => Ok(held(&status)),
                answer => answer.map(|_| Vec::new()),
            }
        };
        self.call(&what, answer).await
    }

    /// Returns which of these RuntimeClasses are used by pods that have not ended. No selector finds such pods, so all pods are listed, page by
    /// page, until each class is known to be used.
    pub async fn used_runtime_classes(&self, names: &BTreeSet<String>) -> Result<BTreeSet<String>, WorkloadError> {
        let api: Api<PodOfClass> = Api::all(self.client.clone());
        let mut pages = self.pages("list pods", api, ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed"));
        let mut used = BTreeSet::new();
        while used.len() < names.len()
            && let Some(pods) = pages.next().await?
        {
            used.extend(pods.into_iter().filter_map(|pod| pod.spec?.runtime_class_name).filter(|name| names.contains(name)));
        }
        Ok(used)
    }

    /// Deletes the object that has this UID and version. A deleted object is no error; one that has changed since is a conflict.
    pub async fn delete_object(&self, of: &Listing, namespace: Option<&str>, name: &str, only: Preconditions) -> Result<(), WorkloadError> {
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::background() };
        let what = format!("delete {}", named(of, namespace, name));
        match self.call(&what, self.api(of, namespace).delete(name, &parameters)).await {
            Err(WorkloadError::Api(ApiError::NotFound(_))) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the fields that others hold, from the causes of a conflict: `conflict with "kubectl-edit" using apps/v1`.
fn held(status: &Status) -> Vec<Held> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let conflicts = causes.iter().filter(|cause| cause.reason == "FieldManagerConflict");
    conflicts
        .map(|cause| Held { field: cause.field.clone(), manager: cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::mock::{Exchange, Script, refuse, step};
    use super::super::pages::MOST_PAGES;
    use super::*;

    fn workload(steps: Vec<Exchange>) -> (Workload, Script) {
        let (client, script) = Script::new(steps);
        (Workload::of(client), script)
    }

    #[tokio::test]
    async fn only_what_was_judged_is_deleted() {
        const DELETE: &str = "DELETE /api/v1/namespaces/capw-windows/pods/probe-win-1";
        let pods = Listing::new("", "v1", "Pod", "pods");
        for (answer, is_deleted) in
            [(step(DELETE, json!({})), true), (refuse(DELETE, 404, "NotFound"), true), (refuse(DELETE, 409, "Conflict"), false)]
        {
            let (workload, script) = workload(vec![answer]);
            let only = Preconditions { uid: Some("u-1".into()), resource_version: Some("7".into()) };
            let deleted = workload.delete_object(&pods, Some("capw-windows"), "probe-win-1", only).await;
            assert_eq!(deleted.is_ok(), is_deleted, "{deleted:?}");
            assert_eq!(script.seen()[0].body["preconditions"], json!({"uid": "u-1", "resourceVersion": "7"}));
        }
    }

    #[tokio::test]
    async fn a_server_whose_pages_never_end_is_told() {
        let page = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": []});
        let (mut workload, script) = workload((0..MOST_PAGES).map(|_| step("GET /api/v1/pods", page.clone())).collect());
        workload.server = "https://10.0.0.1:6443".into();
        let error = workload.used_runtime_classes(&BTreeSet::from(["a".to_owned()])).await.unwrap_err();
        assert_eq!((error.label(), script.seen().len()), ("workload_too_large", MOST_PAGES));
        assert_eq!(
            error.to_string(),
            "the API server of the workload cluster, https://10.0.0.1:6443, answers with more than CAPW reads: list pods: more than 1000 pages; \
             remove objects that are not needed there, or look at what answers in its place"
        );
    }

    #[tokio::test]
    async fn pods_are_listed_until_each_class_is_found_or_all_are_seen() {
        let page = |classes: &[&str], next: &str| {
            let pod = |class: &&str| json!({"metadata": {"name": "p"}, "spec": {"containers": [], "runtimeClassName": class}});
            let items: Vec<Value> = classes.iter().map(pod).collect();
            step("GET /api/v1/pods", json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": next}, "items": items}))
        };
        for (pages, used) in [
            (vec![page(&["a", "c"], "1"), page(&["b"], "2")], vec!["a", "b"]),
            (vec![page(&["c"], "1"), page(&[], "2"), page(&["a"], "")], vec!["a"]),
            (vec![page(&[], "")], vec![]),
        ] {
            let count = pages.len();
            let (workload, script) = workload(pages);
            let names = BTreeSet::from(["a", "b"].map(str::to_owned));
            let found = workload.used_runtime_classes(&names).await.unwrap();
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), used);
            let queries: Vec<String> = script.seen().into_iter().map(|seen| seen.query).collect();
            assert!(queries.iter().all(|query| query.contains("limit=250")), "{queries:?}");
            assert_eq!(queries.iter().filter(|query| query.contains("continue=")).count(), count - 1);
        }
    }
}
