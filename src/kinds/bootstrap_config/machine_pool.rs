//! The WindowsBootstrapConfig that a MachinePool names. It is the template for the configurations of the WindowsNodePool's machines, so that
//! every token is bound to one machine. Cluster API waits for the Secret of this configuration, which therefore exists and lets no machine join.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::context::{Context, MANAGER};
use super::decide::outcome::{DataProblem, not_made};
use super::{data_secret, report};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::domain::gate::{paused, paused_condition};
use crate::engine::outcome::{Outcome, ReconcileError};

const DATA: &str =
    "#cloud-config\n# Nothing is to be done with this: each machine of the pool has bootstrap data of its own, in the Secret of its name.\n{}\n";

pub async fn reconcile(ctx: &Context, object: &WindowsBootstrapConfig, owner: &OwnerReference) -> Result<Outcome, ReconcileError> {
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::done());
    }
    let namespace = object.namespace().unwrap_or_default();
    let Some(pool) = ctx.caches.machine_pools.get(&namespace, &owner.name) else { return Ok(Outcome::done()) };
    let cluster = ctx.caches.clusters.get(&namespace, &pool.spec.cluster_name);
    if let Some(why) = paused(&object.metadata, cluster.as_deref().and_then(Cluster::paused_name)) {
        return report_status(ctx, object, paused_condition(Some(why)), None).await;
    }
    let infrastructure = &pool.spec.template.spec.infrastructure_ref;
    if infrastructure.kind != "WindowsNodePool" {
        let message = format!(
            "MachinePool {}: its infrastructureRef is a {}, whose machines share one join token; use a WindowsNodePool, or a MachineDeployment with that infrastructure",
            owner.name, infrastructure.kind
        );
        return report_status(ctx, object, Desired::no(ConditionType::Ready, Reason::InvalidSpec, message), None).await;
    }
    let labelled = capi::cluster_name(object.metadata.labels.as_ref()).unwrap_or(&pool.spec.cluster_name);
    match data_secret::ensure_holding(ctx, object, Some(labelled), vec![("value", DATA.as_bytes())]).await {
        Ok(secret) => report_status(ctx, object, Desired::yes(ConditionType::Ready, Reason::Ready), Some(&secret.name_any())).await,
        Err(data_secret::Error::Taken(message)) => {
            super::context::report_status(ctx, object, &not_made(DataProblem::SecretTaken, message), None, None).await
        }
        Err(data_secret::Error::Api(error)) => Err(error.into()),
    }
}

async fn report_status(ctx: &Context, object: &WindowsBootstrapConfig, condition: Desired, secret: Option<&str>) -> Result<Outcome, ReconcileError> {
    let available = secret.map(|_| Desired::yes(ConditionType::DataSecretAvailable, Reason::Ready));
    let conditions: Vec<Desired> = std::iter::once(condition).chain(available).collect();
    let next = report::status(object, &conditions, secret, None, ctx.management.now());
    ctx.management.report(object, MANAGER, object.status.as_ref(), &next).await?;
    Ok(Outcome::done())
}
