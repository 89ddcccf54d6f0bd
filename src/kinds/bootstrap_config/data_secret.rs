//! The bootstrap Secret (`docs/design/cluster-api.md#bootstrap-configuration`). A later try finds the Secret, and updates it while no
//! machine has it.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use secrecy::{ExposeSecret, SecretString};

use super::context::Context;
use super::memory::SecretOwner;
use crate::api::bootstrap_config::{ANSWER_KEY, CHANNEL_KEY, WindowsBootstrapConfig};
use crate::api::capi::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use crate::api::cluster_ref::ClusterRef;
use crate::bootstrap::Bootstrap;
use crate::kube_api::cluster::Creation;
use crate::kube_api::error::ApiError;

/// The format that other infrastructure providers understand. cloudbase-init detects the format of the data itself.
const FORMAT: &str = "cloud-config";
/// The key of the join token, so that an expired token can be recreated for a guest that already has it.
const TOKEN_KEY: &str = "token";

/// Why there is no Secret.
pub enum Error {
    /// A Secret of another owner has that name. The text is for the condition.
    Taken(String),
    Api(ApiError),
}

/// Creates the Secret, or updates it if it holds other data; keeps it for the pass that creates the VM; and returns its name.
pub async fn ensure(ctx: &Context, object: &WindowsBootstrapConfig, made: &Bootstrap, token: &SecretString) -> Result<String, Error> {
    let mut data = vec![("value", made.user_data.as_bytes()), (TOKEN_KEY, token.expose_secret().as_bytes())];
    data.extend(made.answer.as_ref().map(|answer| (ANSWER_KEY, answer.as_bytes())));
    let cluster = ClusterRef::of_config(object).filter(|cluster| !cluster.is_standalone()).map(|cluster| cluster.to_string());
    let secret = ensure_holding(ctx, object, cluster.as_deref(), data).await?;
    let name = secret.name_any();
    ctx.made_secrets.keep(secret);
    ctx.secret_owners.keep(object.uid().unwrap_or_default(), SecretOwner::Named);
    Ok(name)
}

/// Returns the Secret with this data and the common data of our Secrets. Creates it if it is missing, and replaces it if it holds other data.
pub async fn ensure_holding(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    cluster: Option<&str>,
    mut data: Vec<(&str, &[u8])>,
) -> Result<Secret, Error> {
    data.extend([("format", FORMAT.as_bytes()), (CHANNEL_KEY, object.spec.channel.name().as_bytes())]);
    let secret = Secret {
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            namespace: object.namespace(),
            labels: cluster.map(|name| [(CLUSTER_NAME_LABEL.to_owned(), name.to_owned())].into()),
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.into()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.to_vec()))).collect()),
        ..Secret::default()
    };
    match ctx.management.cluster.create_if_absent(&secret).await.map_err(Error::Api)? {
        Creation::Made(made) => Ok(made),
        Creation::Existing(found) if is_owned(&found, object) && found.data == secret.data => Ok(found),
        // The Secret was created for an earlier state of the object or the token. No machine has it yet, or the data would not be recreated.
        Creation::Existing(found) if is_owned(&found, object) || is_lost(&found, object) => {
            let metadata = ObjectMeta { owner_references: secret.metadata.owner_references.clone(), ..found.metadata };
            ctx.management.cluster.replace(&Secret { metadata, ..secret }).await.map_err(Error::Api)
        }
        Creation::Existing(_) => Err(Error::Taken(foreign(object))),
    }
}

/// Checks, without writing, whether a Secret of another owner has the name. The text is for the condition.
pub async fn taken(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Option<String>, ApiError> {
    let found: Option<Secret> = ctx.management.cluster.get(&object.namespace().unwrap_or_default(), &object.name_any()).await?;
    Ok(found.filter(|secret| !is_owned(secret, object) && !is_lost(secret, object)).map(|_| foreign(object)))
}

fn is_owned(found: &Secret, object: &WindowsBootstrapConfig) -> bool {
    found.owner_references().iter().any(|o| Some(&o.uid) == object.uid().as_ref())
}

/// Whether a Secret that CAPW created has lost its owner, or names this object before a restore, with another UID. Our Secrets hold the
/// channel, which no other provider and no user writes.
fn is_lost(found: &Secret, object: &WindowsBootstrapConfig) -> bool {
    let kind = WindowsBootstrapConfig::kind(&());
    let is_marked = found.type_.as_deref() == Some(SECRET_TYPE) && found.data.as_ref().is_some_and(|data| data.contains_key(CHANNEL_KEY));
    let is_this = |o: &OwnerReference| o.kind == kind && o.name == object.name_any() && Some(&o.uid) != object.uid().as_ref();
    is_marked && found.owner_references().iter().all(is_this)
}

/// Restores the owner reference of the Secret if it is missing. Without it, the Secret would outlive the object.
pub async fn own(ctx: &Context, object: &WindowsBootstrapConfig, name: &str) -> Result<(), ApiError> {
    let found: Option<Secret> = ctx.management.cluster.get(&object.namespace().unwrap_or_default(), name).await?;
    if let Some(found) = found.filter(|found| is_lost(found, object)) {
        let owners: Vec<OwnerReference> = object.controller_owner_ref(&()).into_iter().collect();
        let metadata = ObjectMeta { owner_references: Some(owners), ..found.metadata };
        ctx.management.cluster.replace(&Secret { metadata, ..found }).await?;
    }
    ctx.secret_owners.keep(object.uid().unwrap_or_default(), SecretOwner::Named);
    Ok(())
}

fn foreign(object: &WindowsBootstrapConfig) -> String {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    format!("Secret {namespace}/{name} exists and does not belong to this object: remove it, or rename the Machine")
}

/// The public and the secret half of the token in the bootstrap Secret.
pub async fn token(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Option<(String, SecretString)>, ApiError> {
    let found: Option<Secret> = ctx.management.cluster.get(&object.namespace().unwrap_or_default(), &object.name_any()).await?;
    let text = found.and_then(|s| s.data?.remove(TOKEN_KEY)).and_then(|v| String::from_utf8(v.0).ok());
    Ok(text.and_then(|t| t.split_once('.').map(|(id, secret)| (id.to_owned(), SecretString::from(secret.to_owned())))))
}
