//! The bootstrap Secret (`docs/design/cluster-api.md#bootstrap-configuration`): written once; a later try finds and keeps it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use secrecy::{ExposeSecret, SecretString};

use super::Context;
use crate::api::bootstrap_config::{ANSWER_KEY, CHANNEL_KEY, WindowsBootstrapConfig};
use crate::api::capi::{self, CLUSTER_NAME_LABEL, SECRET_TYPE};
use crate::bootstrap::Bootstrap;
use crate::cluster::{ApiError, Creation};
use crate::lifecycle::bootstrap_config::report::Token;

/// What other infrastructure providers understand; cloudbase-init finds out by itself what the data is.
pub const FORMAT: &str = "cloud-config";
/// The join token, so that one which expired can be made again for a guest that already has it.
const TOKEN_KEY: &str = "token";

/// Why there is no Secret.
pub enum Error {
    /// A Secret of another owner has that name; the text is for the condition.
    Taken(String),
    Api(ApiError),
}

/// What was made for a configuration: the name of its Secret, and the token in it.
#[derive(Clone, Debug)]
pub struct Made {
    pub secret: String,
    pub token: Token,
    /// What the rules have to say of the data: a message for the user, or empty.
    pub warnings: String,
}

/// What was made and could not be reported yet, by UID: Cluster API labels new objects while we work, and each such write makes
/// our report a conflict. The next try need not make or read anything again. Lost with the process, and found again then.
pub type Unreported = ByUid<Made>;

/// UIDs of the Secrets of the tokens that this process made, by UID of the configuration: such a token need not be read before it
/// is deleted.
pub type KnownTokens = ByUid<String>;

/// A memory of this process about objects, by their UID.
pub struct ByUid<T>(Mutex<HashMap<String, T>>);

impl<T> Default for ByUid<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByUid<T> {
    pub fn keep(&self, uid: String, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, value);
    }

    pub fn take(&self, uid: &str) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid)
    }
}

/// Makes the Secret if it is not there, and returns its name.
pub async fn ensure(ctx: &Context, object: &WindowsBootstrapConfig, made: &Bootstrap, token: &SecretString) -> Result<String, Error> {
    let mut data = vec![
        ("value", made.user_data.as_bytes()),
        ("format", FORMAT.as_bytes()),
        (CHANNEL_KEY, object.spec.channel.name().as_bytes()),
        (TOKEN_KEY, token.expose_secret().as_bytes()),
    ];
    data.extend(made.answer.as_ref().map(|answer| (ANSWER_KEY, answer.as_bytes())));
    ensure_holding(ctx, object, capi::cluster_name(object.metadata.labels.as_ref()), data).await
}

/// As [`ensure`], with this data.
pub async fn ensure_holding(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    cluster: Option<&str>,
    data: Vec<(&str, &[u8])>,
) -> Result<String, Error> {
    let name = object.name_any();
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
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
        Creation::Made(_) => Ok(name),
        Creation::Existing(found) if found.owner_references().iter().any(|o| Some(&o.uid) == object.uid().as_ref()) => Ok(name),
        Creation::Existing(_) => Err(Error::Taken(foreign(object))),
    }
}

/// Looks, without writing, whether a Secret of another owner has the name; the text is for the condition.
pub async fn taken(ctx: &Context, object: &WindowsBootstrapConfig) -> Result<Option<String>, ApiError> {
    let found: Option<Secret> = ctx.management.cluster.get(&object.namespace().unwrap_or_default(), &object.name_any()).await?;
    let ours = |secret: &Secret| secret.owner_references().iter().any(|o| Some(&o.uid) == object.uid().as_ref());
    Ok(found.filter(|secret| !ours(secret)).map(|_| foreign(object)))
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
