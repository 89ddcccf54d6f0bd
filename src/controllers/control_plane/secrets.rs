//! The Secret that an ExternalControlPlane reads, and those that it keeps for Cluster API.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::Context;
use crate::api::capi::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use crate::api::control_plane::ExternalControlPlane;
use crate::cluster::Creation;
use crate::cluster::workload::WorkloadError;
use crate::controllers::runtime::outcome::ReconcileError;

/// Where the kubeconfig is.
pub struct Source {
    pub secret: String,
    pub key: String,
}

pub fn source(object: &ExternalControlPlane, cluster: &str) -> Source {
    let default = Source { secret: format!("{cluster}-external-kubeconfig"), key: "value".to_owned() };
    object.spec.kubeconfig_secret_ref.as_ref().map_or(default, |r| Source { secret: r.name.clone(), key: r.key.clone() })
}

/// The Secrets that core and others read: `<cluster>-kubeconfig`, and `<cluster>-ca` without a key.
fn wanted(object: &ExternalControlPlane, cluster: &str, kubeconfig: &[u8], ca: Option<&str>) -> Vec<Secret> {
    let secret = |suffix: &str, key: &str, value: &[u8]| Secret {
        metadata: ObjectMeta {
            name: Some(format!("{cluster}-{suffix}")),
            namespace: object.namespace(),
            labels: Some(BTreeMap::from([(CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned())])),
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.into()),
        data: Some(BTreeMap::from([(key.to_owned(), ByteString(value.to_vec()))])),
        ..Secret::default()
    };
    let is_source = source(object, cluster).secret == format!("{cluster}-kubeconfig");
    let kubeconfig = (!is_source).then(|| secret("kubeconfig", "value", kubeconfig));
    kubeconfig.into_iter().chain(ca.map(|ca| secret("ca", "tls.crt", ca.as_bytes()))).collect()
}

/// Whether the Secrets are as they should be. One of that name that belongs to something else is an error.
pub async fn are_current(
    ctx: &Context,
    object: &ExternalControlPlane,
    cluster: &str,
    kubeconfig: &[u8],
    ca: Option<&str>,
) -> Result<bool, WorkloadError> {
    let namespace = object.namespace().unwrap_or_default();
    for wanted in wanted(object, cluster, kubeconfig, ca) {
        let found: Option<Secret> = ctx.management.cluster.get(&namespace, &wanted.name_any()).await.map_err(WorkloadError::Management)?;
        let Some(found) = found else { return Ok(false) };
        if !is_owned(&found, object) {
            let what = format!("Secret {namespace}/{} exists and does not belong to this ExternalControlPlane: remove it", found.name_any());
            return Err(WorkloadError::Foreign { what });
        }
        if found.data != wanted.data {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_owned(found: &Secret, object: &ExternalControlPlane) -> bool {
    found.owner_references().iter().any(|o| Some(&o.uid) == object.uid().as_ref())
}

/// Makes the Secrets, or corrects them.
pub async fn write(ctx: &Context, object: &ExternalControlPlane, cluster: &str, kubeconfig: &[u8]) -> Result<(), ReconcileError> {
    let workload = ctx.clients.get(&ctx.clusters, "the kubeconfig", kubeconfig).await?;
    for wanted in wanted(object, cluster, kubeconfig, workload.ca_pem.as_deref()) {
        if let Creation::Existing(found) = ctx.management.cluster.create_if_absent(&wanted).await?
            && is_owned(&found, object)
            && found.data != wanted.data
        {
            ctx.management.cluster.replace(&Secret { metadata: found.metadata.clone(), ..wanted }).await?;
        }
    }
    Ok(())
}
