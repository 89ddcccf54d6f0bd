//! Bootstrap tokens in a workload cluster: Secrets `kube-system/bootstrap-token-<id>`, one for each machine.
//!
//! Our tokens put a kubelet into our own group, whose requests kube-controller-manager does not approve automatically. A token of another owner is
//! never changed or deleted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::cluster::FIELD_MANAGER;
use super::error::ApiError;
use super::workload::{Workload, WorkloadError};
use crate::api::bootstrap_config::JOIN_GROUP;
use crate::guards::Guard;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The label of all our tokens, for listing.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "capw");
/// The annotation that names the owner of a token.
const OWNER: &str = "capw.cluster.x-k8s.io/owner";

/// The owner of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The identity that is compared before a token is changed or deleted. It must survive `clusterctl move`, so it is no UID of an object.
    pub id: String,
    /// The owner for people, e.g. `WindowsMachine lab/win-1`.
    pub description: String,
}

/// A token as stored in the workload cluster.
#[derive(Clone, Debug)]
pub struct Token {
    /// The public half, six characters.
    pub id: String,
    /// The secret half, sixteen characters. After a crash the existing one counts, not the one that was to be created.
    pub secret: SecretString,
    /// The expiry; `None`: the token never expires, or the text is not a time.
    pub expires: Option<Timestamp>,
    /// The [`Owner::id`] of its owner, if it has one.
    pub owner: Option<String>,
    /// The UID of the Secret, for [`delete_made`].
    pub uid: String,
    version: String,
}

impl Token {
    fn read(secret: Secret) -> Option<Self> {
        let data = secret.data.unwrap_or_default();
        let text = |key: &str| data.get(key).and_then(|v| String::from_utf8(v.0.clone()).ok());
        Some(Self {
            id: text("token-id")?,
            secret: text("token-secret")?.into(),
            expires: text("expiration").and_then(|t| t.parse().ok()),
            owner: secret.metadata.annotations.and_then(|mut a| a.remove(OWNER)),
            uid: secret.metadata.uid?,
            version: secret.metadata.resource_version?,
        })
    }
}

fn name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn api(workload: &Workload) -> Api<Secret> {
    Api::namespaced(workload.client.clone(), NAMESPACE)
}

fn foreign(id: &str) -> WorkloadError {
    let name = name(id);
    WorkloadError::Foreign {
        what: format!("Secret {NAMESPACE}/{name} in the workload cluster belongs to something else; delete it if it is not needed"),
    }
}

/// Returns the token with that id.
pub async fn get(workload: &Workload, id: &str) -> Result<Option<Token>, WorkloadError> {
    let found = workload.call(&format!("get secrets {NAMESPACE}/{}", name(id)), api(workload).get_opt(&name(id))).await?;
    Ok(found.and_then(Token::read))
}

/// Creates a token, or returns the existing one with that id if it has the same owner.
pub async fn create(workload: &Workload, id: &str, secret: &SecretString, owner: &Owner, expires: Timestamp) -> Result<Token, WorkloadError> {
    let body = body(id, secret, owner, expires);
    match workload.call(&format!("create secrets {NAMESPACE}/{}", name(id)), api(workload).create(&PostParams::default(), &body)).await {
        Ok(made) => Token::read(made).ok_or_else(|| foreign(id)),
        Err(WorkloadError::Api(ApiError::AlreadyExists(text))) => match get(workload, id).await? {
            Some(token) if token.owner.as_deref() == Some(&owner.id) && Guard::FoundToken.holds() => Ok(token),
            Some(_) => Err(foreign(id)),
            // The Secret was deleted between the two calls, or is not a token.
            None => Err(WorkloadError::Api(ApiError::Conflict(text))),
        },
        Err(error) => Err(error),
    }
}

fn body(id: &str, secret: &SecretString, owner: &Owner, expires: Timestamp) -> Secret {
    let text = |t: &str| ByteString(t.as_bytes().to_vec());
    let data = [
        ("token-id", text(id)),
        ("token-secret", text(secret.expose_secret())),
        ("expiration", text(&time(expires))),
        ("usage-bootstrap-authentication", text("true")),
        // Lets the controller manager sign cluster-info, which kubeadm's discovery reads.
        ("usage-bootstrap-signing", text("true")),
        ("auth-extra-groups", text(JOIN_GROUP)),
        ("description", text(&format!("Join token of {}, made by CAPW", owner.description))),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(name(id)),
            namespace: Some(NAMESPACE.into()),
            labels: Some(BTreeMap::from([(MANAGED_BY.0.into(), MANAGED_BY.1.into())])),
            annotations: Some(BTreeMap::from([(OWNER.into(), owner.id.clone())])),
            ..Default::default()
        },
        type_: Some(TYPE.into()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ..Default::default()
    }
}

/// Formats a time in whole seconds, as the token controllers write it.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets a new expiry for exactly the token that was read.
pub async fn extend(workload: &Workload, token: &Token, expires: Timestamp) -> Result<Token, WorkloadError> {
    let patch = json!({
        "metadata": { "uid": token.uid, "resourceVersion": token.version },
        "data": { "expiration": ByteString(time(expires).into_bytes()) },
    });
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let (name, api, patch) = (name(&token.id), api(workload), Patch::Merge(&patch));
    let patched = workload.call(&format!("patch secrets {NAMESPACE}/{name}"), api.patch(&name, &parameters, &patch)).await?;
    Token::read(patched).ok_or_else(|| foreign(&token.id))
}

/// Deletes the token if it has that owner. `false`: there was no such token, and nothing was done.
pub async fn delete(workload: &Workload, id: &str, owner: &str) -> Result<bool, WorkloadError> {
    let Some(token) = get(workload, id).await?.filter(|t| t.owner.as_deref() == Some(owner)) else {
        return Ok(false);
    };
    delete_if(workload, id, Preconditions { uid: Some(token.uid), resource_version: Some(token.version) }).await
}

/// Deletes every token of that owner, whatever its id, and returns their number. A restored object has another UID, and computes another id than
/// before.
pub async fn delete_all_of(workload: &Workload, owner: &str) -> Result<usize, WorkloadError> {
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    let mut pages = workload.pages(&format!("list secrets {NAMESPACE}"), api(workload), ours);
    let mut deleted = 0;
    while let Some(secrets) = pages.next().await? {
        for token in secrets.into_iter().filter_map(Token::read).filter(|token| token.owner.as_deref() == Some(owner)) {
            let preconditions = Preconditions { uid: Some(token.uid), resource_version: Some(token.version) };
            deleted += usize::from(delete_if(workload, &token.id, preconditions).await?);
        }
    }
    Ok(deleted)
}

/// Deletes the token that this process created as the Secret with that UID, without reading it first. `false`: it was deleted already. Another
/// Secret of that name is a conflict.
pub async fn delete_made(workload: &Workload, id: &str, uid: &str) -> Result<bool, WorkloadError> {
    delete_if(workload, id, Preconditions { uid: Some(uid.to_owned()), resource_version: None }).await
}

async fn delete_if(workload: &Workload, id: &str, preconditions: Preconditions) -> Result<bool, WorkloadError> {
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match workload.call(&format!("delete secrets {NAMESPACE}/{}", name(id)), api(workload).delete(&name(id), &parameters)).await {
        Ok(_) => Ok(true),
        Err(WorkloadError::Api(ApiError::NotFound(_))) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
