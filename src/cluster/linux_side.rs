//! Reading objects of any kind of a workload cluster, to learn what its Linux nodes run. Reads only.

use kube::api::{Api, ApiResource, DynamicObject, ListParams, TypeMeta};
use serde_json::{Value, json};

use super::ApiError;
use super::workload::{Workload, WorkloadError};
use crate::api::listing::Listing;

impl Workload {
    /// All objects of a kind in all namespaces, without `managedFields`; none of a kind that the API server does not serve.
    pub async fn objects(&self, of: &Listing) -> Result<Vec<Value>, WorkloadError> {
        let api_version = of.api_version();
        let resource = ApiResource {
            group: of.group.into(),
            version: of.version.into(),
            api_version: api_version.clone(),
            kind: of.kind.into(),
            plural: of.plural.into(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let listed = match self.call(&format!("list {}", of.plural), api.list(&ListParams::default().labels(of.labels))).await {
            Ok(listed) => listed.items,
            Err(WorkloadError::Api(ApiError::NotFound(_))) => Vec::new(),
            Err(error) => return Err(error),
        };
        let read = |mut object: DynamicObject| {
            // Items of a list do not say what they are.
            object.types = Some(TypeMeta { api_version: api_version.clone(), kind: of.kind.into() });
            object.metadata.managed_fields = None;
            serde_json::to_value(object).ok()
        };
        Ok(listed.into_iter().filter_map(read).collect())
    }

    /// The ConfigMap of that name, if there is one.
    pub async fn config_map_object(&self, namespace: &str, name: &str) -> Result<Option<Value>, WorkloadError> {
        let found = self.config_map(namespace, name).await?;
        Ok(found.map(|map| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": map.data})))
    }
}
