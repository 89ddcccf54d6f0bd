//! A WindowsBootstrapConfig that a MachinePool names: the pattern of those that its WindowsNodePool gives to each machine, so that
//! every token is bound to one machine. Cluster API waits for its Secret, which therefore exists and joins nobody.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::Context;
use super::bootstrap::MANAGER;
use super::data_secret::{self, FORMAT};
use super::report::report;
use super::shell::{Outcome, ReconcileError};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::lifecycle::{self, paused, paused_condition};

const DATA: &str =
    "#cloud-config\n# Nothing is to be done with this: each machine of the pool has bootstrap data of its own, in the Secret of its name.\n{}\n";

pub async fn reconcile(ctx: &Context, object: &WindowsBootstrapConfig, owner: &OwnerReference) -> Result<Outcome, ReconcileError> {
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::done());
    }
    let namespace = object.namespace().unwrap_or_default();
    let Some(pool) = ctx.stores.machine_pools.get(&namespace, &owner.name) else { return Ok(Outcome::done()) };
    let cluster = ctx.stores.clusters.get(&namespace, &pool.spec.cluster_name);
    if let Some(why) = paused(&object.metadata, cluster.as_deref()) {
        return say(ctx, object, paused_condition(Some(why)), None).await;
    }
    let infrastructure = &pool.spec.template.spec.infrastructure_ref;
    if infrastructure.kind != "WindowsNodePool" {
        let message = format!(
            "MachinePool {}: its infrastructureRef is a {}, whose machines share one join token; use a WindowsNodePool, or a MachineDeployment with that infrastructure",
            owner.name, infrastructure.kind
        );
        return say(ctx, object, Desired::no(ConditionType::Ready, Reason::InvalidSpec, message), None).await;
    }
    let labelled = capi::cluster_name(object.metadata.labels.as_ref()).unwrap_or(&pool.spec.cluster_name);
    match data_secret::ensure_holding(ctx, object, Some(labelled), vec![("value", DATA.as_bytes()), ("format", FORMAT.as_bytes())]).await {
        Ok(secret) => say(ctx, object, Desired::yes(ConditionType::Ready, Reason::Ready), Some(&secret)).await,
        Err(data_secret::Error::Foreign(message)) => say(ctx, object, Desired::no(ConditionType::Ready, Reason::SecretConflict, message), None).await,
        Err(data_secret::Error::Reconcile(error)) => Err(error),
    }
}

async fn say(ctx: &Context, object: &WindowsBootstrapConfig, said: Desired, secret: Option<&str>) -> Result<Outcome, ReconcileError> {
    let available = secret.map(|_| Desired::yes(ConditionType::DataSecretAvailable, Reason::Ready));
    let said: Vec<Desired> = std::iter::once(said).chain(available).collect();
    let next = lifecycle::report::bootstrap(object, &said, secret, None, ctx.now());
    report(ctx, object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}
