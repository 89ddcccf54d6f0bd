//! The management cluster: reads and writes of our kinds.

use std::fmt::Debug;

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::ApiError;
use super::guarded::Guarded;
use super::limits::REQUEST_LIMIT;
use crate::api::name::ObjectKey;

/// The objects of one page, where a list is read page by page.
pub(super) const PAGE: u32 = 250;
/// The field manager of all patches except the status patches of controllers.
pub const FIELD_MANAGER: &str = "capw";

/// A namespaced kind that we read and write.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}
impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

/// The outcome of [`Cluster::create_if_absent`].
#[derive(Clone, Debug)]
pub enum Creation<K> {
    /// This call created the object.
    Made(K),
    /// An object of that name existed; the caller must check its owner.
    Existing(K),
}

/// The objects of a list.
#[derive(Clone, Debug)]
pub struct Listed<K> {
    pub items: Vec<K>,
    /// The metadata of the objects that do not match their kind; no more is known of them.
    pub unreadable: Vec<ObjectMeta>,
}

/// The management cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns the client for watches; requests use the methods below.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn api<K: Kind>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads objects faster than [`Cluster::api`]: without their managed fields.
    fn guarded<K: Kind>(&self, namespace: &str) -> Api<Guarded<K>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads the object from the API server; `None` if it does not exist.
    pub async fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<Option<K>, ApiError> {
        request(&what::<K>("get", namespace, name), self.api::<K>(namespace).get_opt(name)).await
    }

    /// Reads the object from the API server, whatever its shape. Uses a list with one object, as controllers have the right to list their kinds.
    pub async fn get_raw<K: Kind>(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        let what = what::<K>("list", namespace, name);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<K>(&()));
        let found = request(&what, api.list(&ListParams::default().fields(&format!("metadata.name={name}")))).await?;
        let Some(object) = found.items.into_iter().next() else { return Ok(None) };
        let mut raw = serde_json::to_value(object).map_err(|e| ApiError::Other(format!("{what}: {e}")))?;
        if let Value::Object(fields) = &mut raw {
            fields.insert("apiVersion".to_owned(), json!(K::api_version(&())));
            fields.insert("kind".to_owned(), json!(K::kind(&())));
        }
        Ok(Some(raw))
    }

    /// As [`Cluster::get`], for kinds that controllers may list but not get.
    pub async fn find<K: Kind>(&self, namespace: &str, name: &str) -> Result<Option<K>, ApiError> {
        let Some(raw) = self.get_raw::<K>(namespace, name).await? else { return Ok(None) };
        serde_path_to_error::deserialize(&raw)
            .map(Some)
            .map_err(|error| ApiError::Other(format!("{} {namespace}/{name} cannot be read: {}: correct that field", K::kind(&()), error.path())))
    }

    /// Lists the objects in a namespace that have these labels (`key=value,…`), or all of them.
    pub async fn list<K: Kind>(&self, namespace: &str, labels: Option<&str>) -> Result<Listed<K>, ApiError> {
        let found = request(&what::<K>("list", namespace, ""), self.guarded(namespace).list(&having(labels))).await?;
        let mut listed = Listed { items: Vec::new(), unreadable: Vec::new() };
        for object in found.items {
            match object.0 {
                Ok(object) => listed.items.push(object),
                Err(invalid) => listed.unreadable.push(invalid.metadata),
            }
        }
        Ok(listed)
    }

    /// Lists objects in a namespace or in all namespaces. An unreadable object is an error, because people would not see that it is missing.
    pub async fn list_in<K: Kind>(&self, namespace: Option<&str>, labels: Option<&str>) -> Result<Vec<K>, ApiError> {
        let (what, api) = match namespace {
            Some(namespace) => (what::<K>("list", namespace, ""), self.api::<K>(namespace)),
            None => (format!("list {} in all namespaces", K::plural(&())), Api::all(self.client.clone())),
        };
        Ok(request(&what, api.list(&having(labels))).await?.items)
    }

    /// Lists all objects of a kind that may not be served: then it has no objects.
    pub async fn list_served<K: Kind>(&self, namespace: Option<&str>) -> Result<Vec<K>, ApiError> {
        match self.list_in(namespace, None).await {
            Err(ApiError::NotFound(_) | ApiError::NotServed(_)) => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Returns the API groups that the API server serves, in any version.
    pub async fn groups(&self) -> Result<Vec<String>, ApiError> {
        let found = request("get /apis", self.client.list_api_groups()).await?;
        Ok(found.groups.into_iter().map(|group| group.name).collect())
    }

    /// Creates the object, or returns the existing object with its name.
    pub async fn create_if_absent<K: Kind>(&self, object: &K) -> Result<Creation<K>, ApiError> {
        let ObjectKey { namespace, name } = key(object)?;
        let api = self.api::<K>(&namespace);
        match request(&what::<K>("create", &namespace, &name), api.create(&PostParams::default(), object)).await {
            Ok(made) => Ok(Creation::Made(made)),
            Err(ApiError::AlreadyExists(text)) => match self.get(&namespace, &name).await? {
                Some(existing) => Ok(Creation::Existing(existing)),
                // The object was deleted between the two calls.
                None => Err(ApiError::Conflict(text)),
            },
            Err(error) => Err(error),
        }
    }

    /// Replaces the whole object. Its `resourceVersion` must be current; a newer one on the server is a conflict.
    pub async fn replace<K: Kind>(&self, object: &K) -> Result<K, ApiError> {
        let ObjectKey { namespace, name } = key(object)?;
        request(&what::<K>("update", &namespace, &name), self.api::<K>(&namespace).replace(&name, &PostParams::default(), object)).await
    }

    /// Applies `/status` server-side under the field manager of one controller, e.g. `capw-windowsmachine`: fields that this manager set before and
    /// that `status` lacks are removed; nulls are left out. Any write since the read is a conflict: the status of custom resources takes no other
    /// precondition, the API server ignores a wrong UID there.
    pub async fn apply_status<K: Kind, S: Serialize + Sync>(&self, object: &K, manager: &str, status: &S) -> Result<K, ApiError> {
        let ObjectKey { namespace, name } = key(object)?;
        let what = what::<K>("apply status of", &namespace, &name);
        let status = without_nulls(serde_json::to_value(status).map_err(|e| ApiError::Other(format!("{what}: {e}")))?);
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": name, "namespace": namespace, "uid": uid(object)?, "resourceVersion": object.resource_version() },
            "status": status,
        });
        let parameters = PatchParams::apply(manager).force();
        written(&what, self.guarded(&namespace).patch_status(&name, &parameters, &Patch::Apply(&body))).await
    }

    /// Merges `spec` into the object's spec.
    pub async fn merge_spec<K: Kind>(&self, object: &K, spec: Value) -> Result<K, ApiError> {
        self.merge(object, json!({ "spec": spec })).await
    }

    /// Merges `patch` into the object that was read; a recreated object is a conflict.
    pub async fn merge<K: Kind>(&self, object: &K, patch: Value) -> Result<K, ApiError> {
        let ObjectKey { namespace, name } = key(object)?;
        let mut patch = patch;
        set(&mut patch, "uid", json!(uid(object)?));
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        written(&what::<K>("patch", &namespace, &name), self.guarded(&namespace).patch(&name, &parameters, &Patch::Merge(&patch))).await
    }

    /// Deletes exactly that object (and that version of it, if given). A deleted object is no error; another one of its name is a conflict.
    pub async fn delete_exact<K: Kind>(&self, namespace: &str, name: &str, uid: &str, version: Option<&str>) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: version.map(str::to_owned) };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match request(&what::<K>("delete", namespace, name), self.api::<K>(namespace).delete(name, &parameters)).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Waits for one request, at most [`REQUEST_LIMIT`].
///
/// The call is boxed here, before an `async` block holds it: each block around it would be larger by twice its 2 KiB, and a pass has a dozen of them.
pub(crate) fn request<'a, T: 'a>(
    what: &'a str,
    call: impl Future<Output = kube::Result<T>> + Send + 'a,
) -> impl Future<Output = Result<T, ApiError>> + Send + 'a {
    let call = call.boxed();
    async move {
        match tokio::time::timeout(REQUEST_LIMIT, call).await {
            Ok(answer) => answer.map_err(|e| ApiError::of(what, e)),
            Err(_) => Err(ApiError::Unreachable(format!("{what}: no answer within {}s", REQUEST_LIMIT.as_secs()))),
        }
    }
}

/// As [`request`], for a write that returns the object.
fn written<'a, K: Kind>(
    what: &'a str,
    call: impl Future<Output = kube::Result<Guarded<K>>> + Send + 'a,
) -> impl Future<Output = Result<K, ApiError>> + Send + 'a {
    let answer = request(what, call);
    // The text of the error may quote a value of a Secret.
    async move { answer.await?.0.map_err(|_| ApiError::Other(format!("{what}: the answer is not what was expected"))) }
}

fn having(labels: Option<&str>) -> ListParams {
    ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() }
}

fn what<K: Resource<DynamicType = ()>>(verb: &str, namespace: &str, name: &str) -> String {
    format!("{verb} {} {namespace}/{name}", K::plural(&()))
}

fn key<K: Kind>(object: &K) -> Result<ObjectKey, ApiError> {
    match (object.namespace(), object.meta().name.clone()) {
        (Some(namespace), Some(name)) => Ok(ObjectKey { namespace, name }),
        _ => Err(ApiError::Invalid(format!("{}: metadata.name and metadata.namespace must be set", K::kind(&())))),
    }
}

fn uid<K: Kind>(object: &K) -> Result<String, ApiError> {
    object.uid().ok_or_else(|| ApiError::Invalid(format!("{} {}: has no metadata.uid, so it was never read", K::kind(&()), object.name_any())))
}

/// Sets `metadata.<field>` of a patch.
pub(crate) fn set(patch: &mut Value, field: &str, value: Value) {
    if let Value::Object(root) = patch
        && let Value::Object(metadata) = root.entry("metadata").or_insert_with(|| json!({}))
    {
        metadata.insert(field.to_owned(), value);
    }
}

/// Core reads a JSON null in a contract field as a type error, and an applied null is stored (`docs/design/cluster-api.md#optional-fields`).
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests;
