//! ExternalControlPlane: observe → decide → act → report. The decisions are in [`lifecycle::control_plane`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::Context;
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use crate::api::capi::{self, CLUSTER_NAME_LABEL, SECRET_TYPE};
use crate::api::condition::{self, ConditionType, Reason};
use crate::api::control_plane::ExternalControlPlane;
use crate::cluster::Creation;
use crate::cluster::workload::{self, Right, WorkloadError};
use crate::lifecycle::control_plane::{Answer, Probe, Situation, Step, decide};
use crate::lifecycle::{self, Decision};

const MANAGER: &str = "capw-externalcontrolplane";

/// What Cluster API and we need to do in the workload cluster.
const RIGHTS: &[Right<'static>] = &[
    right("create", "", "secrets", "kube-system"),
    right("delete", "", "secrets", "kube-system"),
    right("patch", "", "secrets", "kube-system"),
    right("get", "", "nodes", ""),
    right("list", "", "nodes", ""),
    right("patch", "", "nodes", ""),
    right("delete", "", "nodes", ""),
    right("list", "", "pods", ""),
    Right { subresource: "eviction", ..right("create", "", "pods", "") },
    right("watch", "certificates.k8s.io", "certificatesigningrequests", ""),
    right("delete", "certificates.k8s.io", "certificatesigningrequests", ""),
    Right { subresource: "approval", ..right("update", "certificates.k8s.io", "certificatesigningrequests", "") },
    Right { name: "kubernetes.io/kube-apiserver-client-kubelet", ..right("approve", "certificates.k8s.io", "signers", "") },
    right("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
];

const fn right(verb: &'static str, group: &'static str, resource: &'static str, namespace: &'static str) -> Right<'static> {
    Right { verb, group, resource, subresource: "", namespace, name: "" }
}

pub async fn reconcile(object: Arc<ExternalControlPlane>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    let namespace = object.namespace().unwrap_or_default();
    let owner = object.owner_references().iter().find(|o| o.kind == "Cluster" && o.api_version.starts_with(capi::GROUP)).map(|o| o.name.clone());
    let cluster = owner.as_deref().and_then(|name| ctx.stores.clusters.get(&namespace, name));
    let mut situation = Situation { object: &object, cluster: cluster.as_deref(), owned: owner.is_some(), probe: Probe::None };
    let mut decision = decide(&situation);
    let name = owner.unwrap_or_default();
    let mut kubeconfig = Vec::new();
    if decision.step == Step::Probe {
        situation.probe = match probe(ctx, &object, &namespace, &name, &mut kubeconfig).await {
            Ok(answer) => Probe::Answered(answer),
            Err(error) => failed(&error)?,
        };
        decision = decide(&situation);
    }
    match &decision.step {
        Step::Ignore => Ok(Outcome::done()),
        Step::Wait | Step::Probe => say(ctx, &object, &decision, None).await,
        Step::Report(answer) => say(ctx, &object, &decision, Some((answer.version.as_str(), answer.digest.as_str()))).await,
        Step::WriteSecrets => write_secrets(ctx, &object, &namespace, &name, &kubeconfig).await,
        Step::SetEndpoint(endpoint) => {
            let spec = json!({ "controlPlaneEndpoint": { "host": endpoint.host, "port": endpoint.port } });
            ctx.written.note(&ctx.cluster.merge_spec(&*object, spec).await?);
            Ok(Outcome::done())
        }
    }
}

/// Where the kubeconfig is: name and key of the Secret.
fn source(object: &ExternalControlPlane, cluster: &str) -> (String, String) {
    let default = (format!("{cluster}-external-kubeconfig"), "value".to_owned());
    object.spec.kubeconfig_secret_ref.as_ref().map_or(default, |r| (r.name.clone(), r.key.clone()))
}

async fn probe(
    ctx: &Context,
    object: &ExternalControlPlane,
    namespace: &str,
    cluster: &str,
    kubeconfig: &mut Vec<u8>,
) -> Result<Answer, WorkloadError> {
    let (secret, key) = source(object, cluster);
    *kubeconfig = workload::read(&ctx.cluster, namespace, &secret, &key).await?;
    let workload = ctx.probes.client(&ctx.workloads, &format!("Secret {namespace}/{secret}, key {key}"), kubeconfig).await?;
    let version = workload.version().await?;
    let checked = object.status.as_ref().and_then(|s| s.checked_kubeconfig.as_deref());
    let settled = checked == Some(&workload.fingerprint) && available(object);
    let missing = if settled { None } else { Some(workload.lacks(RIGHTS).await?.iter().map(ToString::to_string).collect()) };
    let secrets_current = secrets_current(ctx, object, namespace, cluster, kubeconfig, workload.ca_pem.as_deref()).await?;
    Ok(Answer { version, server: workload.endpoint(), digest: workload.fingerprint.clone(), missing, secrets_current })
}

fn available(object: &ExternalControlPlane) -> bool {
    object.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, ConditionType::Available))
}

/// A failure as a condition; what passes by itself is retried instead.
fn failed(error: &WorkloadError) -> Result<Probe, ReconcileError> {
    let reason = match error {
        WorkloadError::KubeconfigMissing { .. } => Reason::KubeconfigMissing,
        WorkloadError::KubeconfigInvalid { .. } => Reason::KubeconfigInvalid,
        WorkloadError::Unreachable { .. } => Reason::EndpointUnreachable,
        WorkloadError::Unauthorized { .. } => Reason::CredentialsRejected,
        WorkloadError::Forbidden { .. } => Reason::PermissionsMissing,
        WorkloadError::Foreign { .. } => Reason::SecretConflict,
        WorkloadError::Api(_) | WorkloadError::Management(_) => return Err(ReconcileError::Workload(error.clone())),
    };
    Ok(Probe::Failed { reason, message: error.to_string() })
}

/// The Secrets that core and others read: `<cluster>-kubeconfig`, and `<cluster>-ca` without a key.
fn wanted_secrets(object: &ExternalControlPlane, namespace: &str, cluster: &str, kubeconfig: &[u8], ca: Option<&str>) -> Vec<Secret> {
    let secret = |suffix: &str, key: &str, value: &[u8]| Secret {
        metadata: ObjectMeta {
            name: Some(format!("{cluster}-{suffix}")),
            namespace: Some(namespace.into()),
            labels: Some(BTreeMap::from([(CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned())])),
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.into()),
        data: Some(BTreeMap::from([(key.to_owned(), ByteString(value.to_vec()))])),
        ..Secret::default()
    };
    let own = source(object, cluster).0 == format!("{cluster}-kubeconfig");
    let kubeconfig = (!own).then(|| secret("kubeconfig", "value", kubeconfig));
    kubeconfig.into_iter().chain(ca.map(|ca| secret("ca", "tls.crt", ca.as_bytes()))).collect()
}

async fn secrets_current(
    ctx: &Context,
    object: &ExternalControlPlane,
    namespace: &str,
    cluster: &str,
    kubeconfig: &[u8],
    ca: Option<&str>,
) -> Result<bool, WorkloadError> {
    for wanted in wanted_secrets(object, namespace, cluster, kubeconfig, ca) {
        let found: Option<Secret> = ctx.cluster.get(namespace, &wanted.name_any()).await.map_err(WorkloadError::Management)?;
        let Some(found) = found else { return Ok(false) };
        if !owned(&found, object) {
            let what = format!("Secret {namespace}/{} exists and does not belong to this ExternalControlPlane: remove it", found.name_any());
            return Err(WorkloadError::Foreign { what });
        }
        if found.data != wanted.data {
            return Ok(false);
        }
    }
    Ok(true)
}

fn owned(found: &Secret, object: &ExternalControlPlane) -> bool {
    found.owner_references().iter().any(|o| Some(&o.uid) == object.uid().as_ref())
}

async fn write_secrets(
    ctx: &Context,
    object: &ExternalControlPlane,
    namespace: &str,
    cluster: &str,
    kubeconfig: &[u8],
) -> Result<Outcome, ReconcileError> {
    let workload = ctx.probes.client(&ctx.workloads, "the kubeconfig", kubeconfig).await.map_err(ReconcileError::Workload)?;
    for wanted in wanted_secrets(object, namespace, cluster, kubeconfig, workload.ca_pem.as_deref()) {
        if let Creation::Existing(found) = ctx.cluster.create_if_absent(&wanted).await?
            && owned(&found, object)
            && found.data != wanted.data
        {
            ctx.cluster.replace(&Secret { metadata: found.metadata.clone(), ..wanted }).await?;
        }
    }
    Ok(Outcome::now())
}

async fn say<S>(ctx: &Context, object: &ExternalControlPlane, said: &Decision<S>, answer: Option<(&str, &str)>) -> Result<Outcome, ReconcileError> {
    let next = lifecycle::report::control_plane(object, &said.conditions, answer, ctx.now());
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::of(said.look_again))
}
