//! The pass for an ExternalControlPlane.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::json;

use super::context::{Context, report_status};
use super::decide::{Answer, ControlPlaneStep, ObservedControlPlane, Probe, WindowsSide, decide};
use super::rights;
use super::secrets::{Source, are_current, check_given, source, write};
use crate::api::capi::{self, Cluster};
use crate::api::cluster::{self, ControlPlaneEndpoint, WindowsCluster};
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{self, ConditionType};
use crate::api::control_plane::{ExternalControlPlane, FINALIZER};
use crate::domain::gate::has_finalizer;
use crate::domain::owner::TargetCluster;
use crate::engine::caches::Caches;
use crate::engine::outcome::{Outcome, ReconcileError};
use crate::engine::owners::{cluster_now, lists_providers};
use crate::engine::workload_clusters::fault;
use crate::kinds::windows_cluster::decide::ending::needs_kubeconfig;
use crate::kube_api::error::ApiError;
use crate::kube_api::workload::WorkloadError;
use crate::kube_api::workloads;

pub async fn reconcile(object: Arc<ExternalControlPlane>, ctx: Context) -> Result<Outcome, ReconcileError> {
    let ctx = &ctx;
    let namespace = object.namespace().unwrap_or_default();
    let name = cluster_of(&ctx.caches, &object);
    let cluster = ctx.caches.clusters.get(&namespace, &name);
    let unreadable = ctx.caches.machines.unreadable(&namespace);
    let unreadable = unreadable.iter().filter(|machine| capi::cluster_name(machine.labels.as_ref()) == Some(name.as_str())).count();
    let machines = ctx.caches.machines.all(&namespace);
    let machines = unreadable + machines.iter().filter(|machine| machine.spec.cluster_name == name).count();
    let mut observed = ObservedControlPlane {
        object: &object,
        cluster: cluster.as_deref(),
        owned: capi::owner(object.metadata.owner_references.as_ref(), capi::GROUP, "Cluster").is_some(),
        machines,
        windows_side: WindowsSide::Unseen,
        probe: Probe::None,
    };
    let mut decision = decide(&observed);
    let now;
    if decision.step == ControlPlaneStep::LookAtWindowsSide {
        // The kubeconfig is lost with the object, so a cache is not enough here: is the Cluster paused, and does anything need the kubeconfig?
        now = cluster_now(&ctx.management, &namespace, &name).await?;
        observed.windows_side = windows_side(ctx, &namespace, &name, now.as_ref()).await?;
        observed.cluster = now.as_ref();
        decision = decide(&observed);
    }
    let mut kubeconfig = Vec::new();
    if decision.step == ControlPlaneStep::Probe {
        observed.probe = match probe(ctx, &object, &namespace, &name, &mut kubeconfig).await {
            Ok(answer) => Probe::Answered(answer),
            Err(error) => failed(&error)?,
        };
        decision = decide(&observed);
    }
    match &decision.step {
        ControlPlaneStep::Ignore => Ok(Outcome::done()),
        ControlPlaneStep::Adopt => {
            ctx.management.add_finalizer(&*object, FINALIZER).await?;
            Ok(Outcome::done())
        }
        ControlPlaneStep::Release => {
            ctx.management.remove_finalizer(&*object, FINALIZER).await?;
            Ok(Outcome::done())
        }
        ControlPlaneStep::Wait | ControlPlaneStep::Probe | ControlPlaneStep::LookAtWindowsSide => report_status(ctx, &object, &decision, None).await,
        ControlPlaneStep::Publish { answer, endpoint } => {
            if !answer.secrets_current {
                write(ctx, &object, &name, &kubeconfig).await?;
            }
            let written = match endpoint {
                Some(endpoint) => Some(set_endpoint(ctx, &object, endpoint).await?),
                None => None,
            };
            report_status(ctx, written.as_ref().unwrap_or(&object), &decision, Some(answer)).await
        }
    }
}

/// The name of the object's Cluster. If the owner reference and the label were removed, the Cluster that names the object: its machines still need
/// the kubeconfig. Empty if there is no Cluster.
fn cluster_of(caches: &Caches, object: &ExternalControlPlane) -> String {
    let names_it = |cluster: &Arc<Cluster>| {
        let reference = cluster.spec.control_plane_ref.as_ref();
        reference.is_some_and(|reference| reference.kind == "ExternalControlPlane" && reference.name == object.name_any())
    };
    let naming = || {
        let clusters = caches.clusters.all(&object.namespace().unwrap_or_default());
        clusters.into_iter().find(names_it).map(|cluster| cluster.name_any())
    };
    capi::cluster_of(&object.metadata).map(str::to_owned).or_else(naming).unwrap_or_default()
}

/// Whether a WindowsCluster of the Cluster needs the kubeconfig. The kind WindowsCluster may not be installed.
async fn windows_side(ctx: &Context, namespace: &str, name: &str, cluster: Option<&Cluster>) -> Result<WindowsSide, ApiError> {
    let all = match ctx.management.cluster.list::<WindowsCluster>(namespace, None).await {
        Err(ApiError::NotServed(_)) if lists_providers(&ctx.management.cluster.groups().await?) => return Ok(WindowsSide::Gone),
        listed => listed?,
    };
    let (reference, target) = (ClusterRef::cluster_api(namespace, name), cluster.map(|cluster| TargetCluster::of_cluster(cluster, None)));
    let is_its =
        |object: &WindowsCluster| ClusterRef::of_windows_cluster(object).as_ref() == Some(&reference) && needs_kubeconfig(object, target.as_ref());
    let may_be_its =
        |meta: &ObjectMeta| has_finalizer(meta, cluster::FINALIZER) && ClusterRef::of_template(meta).is_none_or(|cluster| cluster == reference);
    let its = all.items.into_iter().find(is_its).map(|object| object.metadata);
    let its = its.or_else(|| all.unreadable.into_iter().find(may_be_its));
    Ok(its.map_or(WindowsSide::Gone, |meta| WindowsSide::Leaving(meta.name.unwrap_or_default())))
}

async fn probe(
    ctx: &Context,
    object: &ExternalControlPlane,
    namespace: &str,
    cluster: &str,
    kubeconfig: &mut Vec<u8>,
) -> Result<Answer, WorkloadError> {
    let Source { secret, key } = source(object, cluster);
    check_given(ctx, object, cluster).await?;
    *kubeconfig = workloads::read(&ctx.management.cluster, namespace, &secret, &key).await?;
    let workload = ctx.clients.get(&ctx.clusters, &format!("Secret {namespace}/{secret}, key {key}"), kubeconfig).await?;
    let version = workload.version().await?;
    let checked = object.status.as_ref().and_then(|s| s.checked_kubeconfig.as_deref());
    let settled = checked == Some(&workload.fingerprint) && available(object);
    let missing: Option<Vec<String>> =
        if settled { None } else { Some(workload.lacks(rights::NEEDED).await?.iter().map(ToString::to_string).collect()) };
    // Without these rights, the UID cannot be read either. The list of missing rights is more useful than that one refusal.
    let uid = if missing.as_ref().is_some_and(Vec::is_empty) { Some(workload.uid().await?) } else { None };
    let secrets_current = are_current(ctx, object, cluster, kubeconfig, workload.ca_pem.as_deref()).await?;
    Ok(Answer { version, server: workload.endpoint(), digest: workload.fingerprint.clone(), uid, missing, secrets_current })
}

fn available(object: &ExternalControlPlane) -> bool {
    object.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, ConditionType::Available))
}

/// Turns a failure into a condition. A failure that passes automatically is retried instead.
fn failed(error: &WorkloadError) -> Result<Probe, ReconcileError> {
    match fault(error) {
        Some(fault) => Ok(Probe::Failed { reason: fault.control_plane_reason(), message: error.to_string() }),
        None => Err(ReconcileError::Workload(error.clone())),
    }
}

async fn set_endpoint(ctx: &Context, object: &ExternalControlPlane, endpoint: &ControlPlaneEndpoint) -> Result<ExternalControlPlane, ApiError> {
    let spec = json!({ "controlPlaneEndpoint": { "host": endpoint.host, "port": endpoint.port } });
    ctx.management.merge_spec(object, spec).await
}

#[cfg(test)]
mod tests;
