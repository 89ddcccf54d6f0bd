//! Definitions of kinds, and objects of any kind by their metadata only. Writes are guarded by the `resourceVersion` in their patch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;

use super::cluster::{Cluster, FIELD_MANAGER, PAGE, request};
use super::error::ApiError;
use crate::api::definition::{Definition, resource};

impl Cluster {
    /// Returns a definition; `None` if the kind is not installed.
    pub async fn definition(&self, name: &str) -> Result<Option<Definition>, ApiError> {
        request(&what("get", name), self.definitions().get_opt(name)).await
    }

    /// Merges a patch into the status of a definition.
    pub async fn merge_definition_status(&self, name: &str, patch: &Value) -> Result<(), ApiError> {
        let patch = Patch::Merge(patch);
        request(&what("patch status of", name), self.definitions().patch_status(name, &parameters(), &patch)).await.map(drop)
    }

    /// Merges a patch into a definition.
    pub async fn merge_definition(&self, name: &str, patch: &Value) -> Result<(), ApiError> {
        request(&what("patch", name), self.definitions().patch(name, &parameters(), &Patch::Merge(patch))).await.map(drop)
    }

    fn definitions(&self) -> Api<Definition> {
        Api::all_with(self.client().clone(), &resource())
    }

    /// Returns the metadata of all objects of a kind, in all namespaces.
    pub async fn list_metadata(&self, resource: &ApiResource) -> Result<Vec<ObjectMeta>, ApiError> {
        let what = format!("list {}", resource.plural);
        let api: Api<DynamicObject> = Api::all_with(self.client().clone(), resource);
        let mut all = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = request(&what, api.list_metadata(&page)).await?;
            all.extend(found.items.into_iter().map(|object| object.metadata));
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    /// Merges a patch into an object, or into its status.
    pub async fn merge_any(&self, resource: &ApiResource, object: &ObjectMeta, status: bool, patch: &Value) -> Result<(), ApiError> {
        let (namespace, name) = (object.namespace.as_deref().unwrap_or_default(), object.name.as_deref().unwrap_or_default());
        let what = format!("patch {} {namespace}/{name}", resource.plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client().clone(), namespace, resource);
        let patch = Patch::Merge(patch);
        if status {
            request(&what, api.patch_status(name, &parameters(), &patch)).await.map(drop)
        } else {
            request(&what, api.patch(name, &parameters(), &patch)).await.map(drop)
        }
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn what(verb: &str, name: &str) -> String {
    format!("{verb} customresourcedefinitions {name}")
}
