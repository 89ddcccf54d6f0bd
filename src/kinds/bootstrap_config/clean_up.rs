//! Cleanup of the workload cluster for a deleted machine: its token, its certificate requests and, if the Cluster is deleted too, its Node.

use kube::ResourceExt;

use super::context::Context;
use super::decide::csr::token_of;
use super::decide::step::{is_token_gone, node_to_delete, token_id};
use super::observe::Found;
use super::token::owner_of;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::machine::HostNamePolicy;
use crate::api::name::{HostName, ProviderId, VmUuid};
use crate::domain::identity::{INFRASTRUCTURE, vm_uuid};
use crate::kube_api::workload::{Workload, WorkloadError};
use crate::kube_api::{csr, token};

/// Removes all of them. Each part handles whatever an earlier pass has left.
pub async fn clean_up(ctx: &Context, object: &WindowsBootstrapConfig, found: &Found) -> Result<(), WorkloadError> {
    // Without a cluster, nothing was created for the configuration.
    let Some(cluster) = ClusterRef::of_config(object) else { return Ok(()) };
    let workload = ctx.clusters.get(&cluster).await?;
    let token = token_id(object);
    if !is_token_gone(object) {
        delete_tokens(object, &cluster, &workload, &token).await?;
    }
    csr::delete_of(&workload, &requests(ctx, &workload, &cluster, &token).await?).await?;
    ctx.clusters.certificates().forget_token(&cluster, &token);
    if !found.cluster.as_ref().is_some_and(|target| target.is_deleting) {
        return Ok(());
    }
    match (found.owner.request(), vm_of_pool(object)) {
        (Some(request), _) => match node_to_delete(request) {
            Some(node) => workload.delete_node(node.name.as_str(), &node.provider_id.to_string()).await,
            None => Ok(()),
        },
        // The machine of a pool may be deleted before its configuration. The name of its hypervisor is then unknown.
        (None, Some((name, vm))) => {
            let machines = ctx.caches.windows_machines.all(&object.namespace().unwrap_or_default());
            let living: Vec<VmUuid> = machines.iter().map(|machine| vm_uuid(machine)).collect();
            workload.delete_node_if(name.as_str(), |id| is_left(id, vm, &living)).await
        }
        (None, None) => Ok(()),
    }
}

/// Deletes the reported token, or every token that was created before a report. CAPW's account in its own cluster may not list tokens.
async fn delete_tokens(object: &WindowsBootstrapConfig, cluster: &ClusterRef, workload: &Workload, token: &str) -> Result<(), WorkloadError> {
    let owner = owner_of(object).id;
    let is_reported = object.status.as_ref().is_some_and(|status| status.token_id.is_some());
    if !is_reported && cluster.source != ClusterSource::InCluster {
        match token::delete_all_of(workload, &owner).await {
            Err(WorkloadError::Forbidden { .. }) => {}
            done => return done.map(drop),
        }
    }
    token::delete(workload, token, &owner).await.map(drop)
}

/// Whether the Node of a deleted machine has this provider ID. After a move, the machine had another UID than the one its VM was created
/// for: its provider ID then names a VM that no machine has.
fn is_left(provider_id: &str, vm: VmUuid, living: &[VmUuid]) -> bool {
    ProviderId::parse(provider_id).is_ok_and(|id| id.vm == vm || !living.contains(&id.vm))
}

/// The host name and the VM for which the configuration of a pool machine was created.
fn vm_of_pool(object: &WindowsBootstrapConfig) -> Option<(HostName, VmUuid)> {
    let machine = capi::owner(object.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsMachine")?;
    let vm = VmUuid::of(&machine.uid);
    Some((HostName::choose(&machine.name, vm, HostNamePolicy::Auto).ok()?, vm))
}

/// Names of the requests that were sent with a token. Requests of a machine that joined before this process started are not in memory.
async fn requests(ctx: &Context, workload: &Workload, cluster: &ClusterRef, token: &str) -> Result<Vec<String>, WorkloadError> {
    let known = ctx.clusters.certificates().requests_of(cluster, token);
    if !known.is_empty() {
        return Ok(known);
    }
    csr::names_of(workload, |request| token_of(request).as_deref() == Some(token)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_machine_that_was_moved_is_found_by_its_name() {
        let vm = VmUuid::of;
        let id = |vm: VmUuid| format!("windows://h/{vm}");
        for (provider_id, living, expected) in [
            (id(vm("now")), vec![], true),
            (id(vm("before the move")), vec![vm("another machine")], true),
            (id(vm("another machine")), vec![vm("another machine")], false),
            ("vsphere://x".to_owned(), vec![], false),
        ] {
            assert_eq!(is_left(&provider_id, vm("now"), &living), expected, "{provider_id} {living:?}");
        }
    }
}
