//! Reads the caches for a configuration: its owner, its cluster, and the machine that gets the data.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use super::context::Context;
use super::decide::step::{Infrastructure, ObservedConfig};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::domain::gate::paused;
use crate::domain::owner::{Owner, TargetCluster, data_secret};
use crate::kube_api::workload::WorkloadError;

pub struct Found {
    pub owner: Owner,
    pub cluster: Option<TargetCluster>,
    pub windows_machine: Option<Arc<WindowsMachine>>,
}

impl Found {
    /// The input of the decision.
    pub fn observed<'a>(&'a self, object: &'a WindowsBootstrapConfig, certificate_issued: Option<Timestamp>) -> ObservedConfig<'a> {
        let is_ours = self.owner.request().is_some_and(|r| r.is_for_windows_machine() && r.infrastructure.api_group.starts_with("infrastructure."));
        let infrastructure = match self.windows_machine.as_deref() {
            _ if !is_ours => Infrastructure::Foreign,
            None => Infrastructure::Unseen,
            Some(machine) => Infrastructure::Ours(machine),
        };
        ObservedConfig { object, owner: &self.owner, cluster: self.cluster.as_ref(), infrastructure, certificate_issued }
    }
}

pub fn observe(ctx: &Context, object: &WindowsBootstrapConfig) -> Found {
    let namespace = object.namespace().unwrap_or_default();
    let owner = ctx.owners.of_config(object);
    let windows_machine = owner.request().and_then(|request| ctx.caches.windows_machines.get(&namespace, &request.infrastructure.name));
    let pool = windows_machine.as_deref().and_then(|m| ctx.caches.pool_of(m));
    let of_pool = pool.as_deref().and_then(|pool| pool.spec.cluster.as_ref());
    let cluster = ClusterRef::of_config(object).and_then(|cluster| ctx.caches.target_cluster(cluster, of_pool));
    Found { owner, cluster, windows_machine }
}

/// Reads the API server's address from the kubeconfig of a standalone pool, which is its only source, while the data is not created yet.
pub async fn ask_for_endpoint(ctx: &Context, object: &WindowsBootstrapConfig, found: &mut Found) -> Result<(), WorkloadError> {
    let Some(cluster) = ClusterRef::of_config(object).filter(ClusterRef::is_standalone) else { return Ok(()) };
    // An annotation alone must not open a connection: an owner must require it.
    if found.owner.request().is_none()
        || object.metadata.deletion_timestamp.is_some()
        || paused(&object.metadata, None).is_some()
        || data_secret(object).is_some()
    {
        return Ok(());
    }
    let workload = ctx.clusters.get_with_nodes(&cluster).await?;
    if let Some(target) = &mut found.cluster {
        target.endpoint.get_or_insert_with(|| workload.endpoint().into());
    }
    Ok(())
}
