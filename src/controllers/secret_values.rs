//! Reads the values of Secrets that a WindowsBootstrapConfig names: from its own namespace, each Secret once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::Context;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::bootstrap::Secrets;
use crate::cluster::ApiError;

/// The values, or what is missing: the text is for a condition, and holds names only.
pub async fn read(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Result<Secrets, String>, ApiError> {
    let namespace = object.namespace().unwrap_or_default();
    let mut found = BTreeMap::<&str, Option<Secret>>::new();
    let mut secrets = Secrets::default();
    for used in object.spec.secret_refs() {
        let (name, key) = (used.reference.name.as_str(), used.reference.key.as_str());
        if !found.contains_key(name) {
            found.insert(name, ctx.cluster.get(&namespace, name).await?);
        }
        let Some(Some(secret)) = found.get(name) else {
            return Ok(Err(format!("{}: Secret {namespace}/{name} does not exist: make it, with the key {key:?}", used.field)));
        };
        let Some(value) = secret.data.as_ref().and_then(|data| data.get(key)) else {
            return Ok(Err(format!("{}: Secret {namespace}/{name} has no key {key:?}: add it, or name another one", used.field)));
        };
        secrets.insert(used.reference.clone(), value.0.clone());
    }
    Ok(Ok(secrets))
}
