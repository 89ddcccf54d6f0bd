//! The Secret that an ExternalControlPlane reads, and the Secrets that it keeps for Cluster API.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::context::Context;
use crate::api::capi::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use crate::api::control_plane::ExternalControlPlane;
use crate::engine::outcome::ReconcileError;
use crate::kube_api::cluster::Creation;
use crate::kube_api::workload::WorkloadError;

/// The Secret and the key that hold the kubeconfig.
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

/// Whether the Secrets are up to date. A Secret with one of these names that belongs to something else is an error.
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
        if is_lost(&found, &wanted, object) {
            return Ok(false);
        }
        if !is_owned(&found, object) {
            return Err(foreign(&found));
        }
        if found.data != wanted.data {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Core reads the kubeconfig from `<cluster>-kubeconfig`. If the user provides that Secret, this checks that it has the form that core reads.
pub async fn check_given(ctx: &Context, object: &ExternalControlPlane, cluster: &str) -> Result<(), WorkloadError> {
    let (namespace, Source { secret, key }) = (object.namespace().unwrap_or_default(), source(object, cluster));
    if secret != format!("{cluster}-kubeconfig") {
        return Ok(());
    }
    let found: Option<Secret> = ctx.management.cluster.get(&namespace, &secret).await.map_err(WorkloadError::Management)?;
    match found.and_then(|found| unfit(&found, &key, cluster)) {
        Some(why) => Err(WorkloadError::KubeconfigInvalid { source_name: format!("Secret {namespace}/{secret}"), why }),
        None => Ok(()),
    }
}

/// Why Cluster API cannot use the Secret.
fn unfit(found: &Secret, key: &str, cluster: &str) -> Option<String> {
    if key != "value" {
        return Some(format!("spec.kubeconfigSecretRef.key is {key:?}, Cluster API reads the key \"value\": use that, or a Secret of another name"));
    }
    if found.type_.as_deref() != Some(SECRET_TYPE) {
        return Some(format!("its type is not {SECRET_TYPE}, which Cluster API needs: recreate it, or use a Secret of another name"));
    }
    if found.labels().get(CLUSTER_NAME_LABEL).map(String::as_str) != Some(cluster) {
        return Some(format!(
            "it lacks the label {CLUSTER_NAME_LABEL}={cluster}, by which Cluster API finds it: set it, or use a Secret of another name"
        ));
    }
    None
}

fn is_owned(found: &Secret, object: &ExternalControlPlane) -> bool {
    found.owner_references().iter().any(|o| Some(&o.uid) == object.uid().as_ref())
}

/// Whether one of our Secrets has lost its owner, or names this object before a restore, with another UID. A Secret without owner and
/// with other content may be the user's.
fn is_lost(found: &Secret, wanted: &Secret, object: &ExternalControlPlane) -> bool {
    let kind = ExternalControlPlane::kind(&());
    match found.owner_references() {
        [] => found.type_ == wanted.type_ && found.data == wanted.data,
        owners => owners.iter().all(|owner| owner.kind == kind && owner.name == object.name_any() && Some(&owner.uid) != object.uid().as_ref()),
    }
}

fn foreign(found: &Secret) -> WorkloadError {
    let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
    WorkloadError::Foreign { what: format!("Secret {namespace}/{name} exists and does not belong to this ExternalControlPlane: remove it") }
}

/// Creates or corrects the Secrets. A Secret with one of these names that belongs to something else is an error.
pub async fn write(ctx: &Context, object: &ExternalControlPlane, cluster: &str, kubeconfig: &[u8]) -> Result<(), ReconcileError> {
    let workload = ctx.clients.get(&ctx.clusters, "the kubeconfig", kubeconfig).await?;
    for wanted in wanted(object, cluster, kubeconfig, workload.ca_pem.as_deref()) {
        let Creation::Existing(found) = ctx.management.cluster.create_if_absent(&wanted).await? else { continue };
        let is_lost = is_lost(&found, &wanted, object);
        if !is_lost && !is_owned(&found, object) {
            return Err(foreign(&found).into());
        }
        if is_lost || found.data != wanted.data {
            let metadata = ObjectMeta { owner_references: wanted.metadata.owner_references.clone(), ..found.metadata };
            ctx.management.cluster.replace(&Secret { metadata, ..wanted }).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_kubeconfig_that_the_user_gives_to_cluster_api_has_the_form_that_it_reads() {
        let labels = BTreeMap::from([(CLUSTER_NAME_LABEL.to_owned(), "c1".to_owned())]);
        let good =
            Secret { metadata: ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }, type_: Some(SECRET_TYPE.into()), ..Secret::default() };
        assert_eq!(unfit(&good, "value", "c1"), None);
        for (secret, key, cluster, said) in [
            (good.clone(), "admin.conf", "c1", "spec.kubeconfigSecretRef.key"),
            (Secret { type_: Some("Opaque".into()), ..good.clone() }, "value", "c1", "its type"),
            (good, "value", "c2", "cluster.x-k8s.io/cluster-name=c2"),
        ] {
            assert!(unfit(&secret, key, cluster).unwrap().contains(said), "{said}");
        }
    }

    #[test]
    fn a_secret_of_ours_is_taken_back_and_one_of_the_user_is_not() {
        let object: ExternalControlPlane = serde_json::from_value(json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1",
            "kind": "ExternalControlPlane", "metadata": {"name": "c1", "namespace": "lab", "uid": "now"}, "spec": {}}))
        .unwrap();
        let wanted = wanted(&object, "c1", b"kubeconfig", None).remove(0);
        let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": uid}]);
        let secret = |owners: Value, data: &str| -> Secret {
            let mut secret = serde_json::to_value(&wanted).unwrap();
            secret["metadata"]["ownerReferences"] = owners;
            secret["data"]["value"] = json!(ByteString(data.as_bytes().to_vec()));
            serde_json::from_value(secret).unwrap()
        };
        for (found, lost) in [
            (secret(json!([]), "kubeconfig"), true),
            (secret(json!([]), "the user's"), false),
            (secret(owner("ExternalControlPlane", "c1", "before"), "from a backup"), true),
            (secret(owner("ExternalControlPlane", "c1", "now"), "kubeconfig"), false),
            (secret(owner("ExternalControlPlane", "c2", "before"), "kubeconfig"), false),
            (secret(owner("KubeadmControlPlane", "c1", "x"), "kubeconfig"), false),
        ] {
            assert_eq!(is_lost(&found, &wanted, &object), lost, "{:?}", found.metadata.owner_references);
        }
    }
}
