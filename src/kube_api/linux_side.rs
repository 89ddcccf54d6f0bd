//! Reads, watches and changes objects of any kind of a workload cluster: the components of its Linux nodes.

use futures::TryStreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, TypeMeta};
use kube::runtime::watcher;
use serde_json::Value;

use super::csr::failed;
use super::error::ApiError;
use super::kept::within;
use super::rights::Right;
use super::watches;
use super::workload::{Workload, WorkloadError};
use crate::api::components::LINUX_SIDE_MANAGER;
use crate::api::listing::Listing;

/// The objects that a watch follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Watched {
    /// All objects of a kind.
    Kind(Listing),
    ConfigMap {
        namespace: String,
        name: String,
    },
}

/// The events of a watch.
pub type Changes = BoxStream<'static, Result<watcher::Event<DynamicObject>, WorkloadError>>;

impl Watched {
    pub fn listing(&self) -> &Listing {
        match self {
            Self::Kind(listing) => listing,
            Self::ConfigMap { .. } => &Listing::CONFIG_MAPS,
        }
    }

    /// Returns the right to watch the objects.
    fn right(&self) -> Right<'_> {
        let Listing { group, plural, .. } = *self.listing();
        let of_kind = Right { verb: "watch", group, resource: plural, ..Right::default() };
        match self {
            Self::Kind(_) => of_kind,
            Self::ConfigMap { namespace, .. } => Right { namespace, ..of_kind },
        }
    }
}

impl Workload {
    /// Reads the existing objects; `None` for a kind that the API server does not serve.
    pub async fn observe(&self, watched: &Watched) -> Result<Option<Vec<Value>>, WorkloadError> {
        match watched {
            Watched::Kind(listing) => self.objects(listing).await,
            Watched::ConfigMap { namespace, name } => {
                let found = self.object(&Listing::CONFIG_MAPS, Some(namespace), name).await?;
                Ok(Some(found.into_iter().collect()))
            }
        }
    }

    pub async fn may_watch(&self, watched: &Watched) -> Result<bool, WorkloadError> {
        Ok(self.lacks(&[watched.right()]).await?.is_empty())
    }

    /// Reads all objects of a kind in all namespaces; `None` for a kind that the API server does not serve.
    pub async fn objects(&self, of: &Listing) -> Result<Option<Vec<Value>>, WorkloadError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(of));
        let pages = self.pages(&format!("list {}", of.plural), api, ListParams::default().labels(of.labels));
        match pages.keep(|object| trimmed(object, of)).await {
            Ok(listed) => Ok(Some(listed)),
            Err(error) if is_unserved(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the API for objects of a kind, in a namespace where they have one.
    pub(super) fn api(&self, of: &Listing, namespace: Option<&str>) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), resource(of));
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Creates an object, under the field manager [`LINUX_SIDE_MANAGER`]. An existing object of another owner with other content is a conflict.
    pub async fn make_object(&self, of: &Listing, namespace: Option<&str>, name: &str, object: &Value) -> Result<(), WorkloadError> {
        let what = format!("create {}", named(of, namespace, name));
        let parameters = PatchParams::apply(LINUX_SIDE_MANAGER);
        self.call(&what, self.api(of, namespace).patch(name, &parameters, &Patch::Apply(object))).await.map(drop)
    }

    /// Merges a patch into an object, under the field manager [`LINUX_SIDE_MANAGER`].
    pub async fn patch_object(&self, of: &Listing, namespace: Option<&str>, name: &str, patch: &Value) -> Result<(), WorkloadError> {
        let api = self.api(of, namespace);
        let parameters = PatchParams { field_manager: Some(LINUX_SIDE_MANAGER.into()), ..PatchParams::default() };
        let what = format!("patch {}", named(of, namespace, name));
        self.call(&what, api.patch(name, &parameters, &Patch::Merge(patch))).await.map(drop)
    }
}

/// Streams the existing objects, and every change. After an error the stream restarts at once with a new listing: the caller must wait.
pub fn changes(workload: &Workload, watched: &Watched) -> Changes {
    let (resource, client, settings) = (resource(watched.listing()), workload.client.clone(), watches::settings());
    let (api, settings): (Api<DynamicObject>, _) = match watched {
        Watched::Kind(listing) => (Api::all_with(client, &resource), settings.labels(listing.labels)),
        Watched::ConfigMap { namespace, name } => {
            (Api::namespaced_with(client, namespace, &resource), settings.fields(&format!("metadata.name={name}")))
        }
    };
    let (endpoint, what) = (workload.clone(), format!("watch {}", resource.plural));
    let events = watcher(api, settings).map_err({
        let what = what.clone();
        move |error| endpoint.explain(failed(&what, error))
    });
    within(workload, &what, events)
}

/// Whether the API server reported that it does not serve the kind.
pub fn is_unserved(error: &WorkloadError) -> bool {
    matches!(error, WorkloadError::Api(ApiError::NotFound(_) | ApiError::NotServed(_)))
}

/// Removes unused parts of the object: the images of a node, and which field managers have which fields.
pub fn trimmed(mut object: DynamicObject, of: &Listing) -> Option<Value> {
    // The items of a list have no type.
    object.types = Some(TypeMeta { api_version: of.api_version(), kind: of.kind.into() });
    for entry in object.metadata.managed_fields.iter_mut().flatten() {
        entry.fields_v1 = None;
    }
    if let Some(status) = object.data.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("images");
    }
    serde_json::to_value(object).ok()
}

/// Formats a name like `daemonsets capw-windows/flannel`.
pub(super) fn named(of: &Listing, namespace: Option<&str>, name: &str) -> String {
    format!("{} {}", of.plural, namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
}

fn resource(of: &Listing) -> ApiResource {
    ApiResource { group: of.group.into(), version: of.version.into(), api_version: of.api_version(), kind: of.kind.into(), plural: of.plural.into() }
}
