//! Reads the values of Secrets and ConfigMaps that a WindowsBootstrapConfig names, from its own namespace. Each Secret is read once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;

use super::context::Context;
use crate::api::bootstrap_config::{CA_BUNDLE_MAP, WindowsBootstrapConfig};
use crate::bootstrap::Secrets;
use crate::kube_api::error::ApiError;

/// Why the values are unavailable.
#[derive(Debug)]
pub enum ValueError {
    /// The message of the condition about a missing object or key. It holds names only.
    Missing(String),
    Api(ApiError),
}

impl From<ApiError> for ValueError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// Reads the values that the spec refers to.
pub async fn read(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Secrets, ValueError> {
    let namespace = object.namespace().unwrap_or_default();
    let mut found = BTreeMap::<&str, Option<Secret>>::new();
    let mut secrets = Secrets::default();
    for used in object.spec.secret_refs() {
        let (name, key) = (used.reference.name.as_str(), used.reference.key.as_str());
        if !found.contains_key(name) {
            found.insert(name, ctx.management.cluster.get(&namespace, name).await?);
        }
        let Some(Some(secret)) = found.get(name) else {
            return Err(ValueError::Missing(format!("{}: Secret {namespace}/{name} does not exist: make it, with the key {key:?}", used.field)));
        };
        let Some(value) = secret.data.as_ref().and_then(|data| data.get(key)) else {
            return Err(ValueError::Missing(format!("{}: Secret {namespace}/{name} has no key {key:?}: add it, or name another one", used.field)));
        };
        secrets.insert(used.reference.clone(), value.0.clone());
    }
    if let Some(reference) = object.spec.config_map_ref() {
        let (name, key) = (reference.name.as_str(), reference.key.as_str());
        let Some(map) = ctx.management.cluster.get::<ConfigMap>(&namespace, name).await? else {
            return Err(ValueError::Missing(format!("{CA_BUNDLE_MAP}: ConfigMap {namespace}/{name} does not exist: make it, with the key {key:?}")));
        };
        let text = map.data.as_ref().and_then(|data| data.get(key)).map(|text| text.clone().into_bytes());
        let Some(value) = text.or_else(|| map.binary_data.and_then(|mut data| data.remove(key)).map(|bytes| bytes.0)) else {
            return Err(ValueError::Missing(format!(
                "{CA_BUNDLE_MAP}: ConfigMap {namespace}/{name} has no key {key:?}: add it, or name another one"
            )));
        };
        secrets.insert_public(reference.clone(), value);
    }
    Ok(secrets)
}
