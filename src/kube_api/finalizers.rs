//! Our finalizer on an object of the management cluster. Other finalizers stay.

use kube::ResourceExt;
use serde_json::json;

use super::cluster::{Cluster, Kind};
use super::error::ApiError;

impl Cluster {
    /// Adds our finalizer to the existing ones. Sends no request if it exists already. A write in between is a conflict.
    pub async fn add_finalizer<K: Kind>(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApiError> {
        let mut all = object.finalizers().to_vec();
        if all.iter().any(|f| f == finalizer) {
            return Ok(None);
        }
        all.push(finalizer.to_owned());
        self.set_finalizers(object, &all).await.map(Some)
    }

    /// Removes only our finalizer and returns the written object. Sends no request if the finalizer is missing; a deleted object is no error.
    pub async fn remove_finalizer<K: Kind>(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApiError> {
        let all: Vec<String> = object.finalizers().iter().filter(|f| *f != finalizer).cloned().collect();
        if all.len() == object.finalizers().len() {
            return Ok(None);
        }
        match self.set_finalizers(object, &all).await {
            Ok(written) => Ok(Some(written)),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn set_finalizers<K: Kind>(&self, object: &K, finalizers: &[String]) -> Result<K, ApiError> {
        self.merge(object, json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.resource_version() } })).await
    }
}
