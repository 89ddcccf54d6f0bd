//! The pass for the definitions of our kinds.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::decide::{Migration, decide, is_outdated, observed, stored, write};
use crate::api::definition;
use crate::api::namespaces::Namespaces;
use crate::engine::outcome::ReconcileError;
use crate::engine::roles::Roles;
use crate::kube_api::cluster::Cluster;
use crate::kube_api::error::{ApiError, Retry};
use crate::telemetry::Metrics;

/// The time until the next check; after a check that failed; after a check in which another client wrote the same object.
const RECHECK: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);
const CONTROLLER: &str = "customresourcedefinition";

pub struct Context {
    pub cluster: Cluster,
    pub metrics: Metrics,
}

/// Checks the definitions of these roles until `stop`. A process that watches only some namespaces does not see all objects: it leaves the
/// definitions to other processes.
pub async fn run(ctx: Context, roles: Roles, namespaces: &Namespaces, stop: &CancellationToken) {
    if *namespaces != Namespaces::All {
        tracing::info!("stored versions stay as they are: this process does not watch all namespaces");
        return;
    }
    let names = names(roles);
    tokio::select! {
        () = stop.cancelled() => {}
        () = look_at_all(&ctx, &names) => {}
    }
}

/// The definitions whose kinds these roles reconcile.
fn names(roles: Roles) -> Vec<String> {
    let ours = |group: &str| match group.split('.').next() {
        Some("bootstrap") => roles.bootstrap,
        Some("controlplane") => roles.control_plane,
        _ => roles.infrastructure,
    };
    definition::names().into_iter().filter(|(group, _)| ours(group)).map(|(_, name)| name).collect()
}

async fn look_at_all(ctx: &Context, names: &[String]) {
    let mut troubles: HashMap<&str, String> = HashMap::new();
    loop {
        let mut next = RECHECK;
        for name in names {
            match check(ctx, name).await {
                Ok(()) => drop(troubles.remove(name.as_str())),
                Err(error) if error.retry() == Retry::Soon => next = next.min(SOON),
                Err(error) => {
                    next = next.min(RETRY);
                    let text = error.to_string();
                    if troubles.insert(name, text.clone()).is_none_or(|before| before != text) {
                        tracing::warn!(definition = name, error = error.label(), "{text}");
                    }
                }
            }
        }
        tokio::time::sleep(next).await;
    }
}

/// A pass, counted like the passes of the other controllers.
async fn check(ctx: &Context, name: &str) -> Result<(), ReconcileError> {
    ctx.metrics.reconcile_started(CONTROLLER);
    let start = Instant::now();
    let result = migrate(ctx, name).await;
    ctx.metrics.reconcile_finished(CONTROLLER, result.as_ref().map_or_else(ReconcileError::label, |()| "done"), start.elapsed());
    result
}

async fn migrate(ctx: &Context, name: &str) -> Result<(), ReconcileError> {
    let Some(definition) = ctx.cluster.definition(name).await? else { return Ok(()) };
    ctx.metrics.stored_versions_outdated(&definition.spec.names.plural, is_outdated(&definition));
    let invalid = |error| ReconcileError::Invalid(format!("customresourcedefinitions {name}: {error}"));
    let Some(migration) = decide(&definition).map_err(invalid)? else { return Ok(()) };
    let left = write_objects(&ctx.cluster, &migration).await?;
    if migration.outdated {
        ctx.cluster.merge_definition_status(name, &stored(&definition, &migration)).await?;
        ctx.metrics.stored_versions_outdated(&definition.spec.names.plural, false);
        tracing::info!(definition = name, storage = migration.storage, "all objects are stored in this version");
    }
    match left {
        // Another client wrote the object, so it is stored in the right version, but it still has fields of a version that is not served.
        Some(conflict) => Err(conflict.into()),
        None => Ok(ctx.cluster.merge_definition(name, &observed(&definition)).await?),
    }
}

/// Writes the objects that need it. Returns the conflict if an object still has fields of a version that is not served.
async fn write_objects(cluster: &Cluster, migration: &Migration) -> Result<Option<ApiError>, ApiError> {
    let mut left = None;
    for object in cluster.list_metadata(&migration.resource).await? {
        let Some(write) = write(&object, migration) else { continue };
        match cluster.merge_any(&migration.resource, &object, write.status, &write.patch).await {
            Ok(()) | Err(ApiError::NotFound(_)) => {}
            Err(conflict @ ApiError::Conflict(_)) => left = left.or(Some(conflict).filter(|_| write.drops_managers)),
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
