//! What a machine that goes has left in its workload cluster: token, certificate requests and, when the Cluster goes with it, its Node.

use kube::ResourceExt;

use crate::controllers::Context;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster, Machine};
use crate::api::name::{ProviderId, VmUuid};
use crate::api::pool::cluster_of;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::cluster::{csr, token};
use crate::lifecycle::bootstrap_config::{is_token_gone, token_id};
use crate::lifecycle::claim::INFRASTRUCTURE;
use crate::lifecycle::bootstrap_config::csr::token_of;

/// Removes all of it; each part finds what an earlier try left. `mark` is the owner mark of the token.
pub async fn clean_up(
    ctx: &Context,
    object: &WindowsBootstrapConfig,
    machine: Option<&Machine>,
    cluster: Option<&Cluster>,
    mark: &str,
) -> Result<(), WorkloadError> {
    let namespace = object.namespace().unwrap_or_default();
    let name = cluster_of(&object.metadata).unwrap_or_default();
    let workload = ctx.workload(&namespace, name).await?;
    let token = token_id(object);
    if !is_token_gone(object) {
        token::delete(&workload, &token, mark).await?;
    }
    csr::delete_of(&workload, &requests(ctx, &workload, &namespace, name, &token).await?).await?;
    let Some(cluster) = cluster.filter(|c| c.metadata.deletion_timestamp.is_some()) else { return Ok(()) };
    match (machine.and_then(|machine| node_to_delete(machine, cluster)), vm_of_pool(object)) {
        (Some((node, id)), _) => workload.delete_node(node, &id.to_string()).await,
        // A machine of a pool may be gone before its configuration: its VM is known by its identity alone.
        (None, Some(vm)) if machine.is_none() => workload.delete_node_of(|id| ProviderId::parse(id).is_ok_and(|id| id.vm == vm)).await,
        (None, _) => Ok(()),
    }
}

/// The VM that the configuration of a machine of a pool was made for.
fn vm_of_pool(object: &WindowsBootstrapConfig) -> Option<VmUuid> {
    let machine = capi::owner(object.metadata.owner_references.as_ref(), INFRASTRUCTURE, "WindowsMachine")?;
    Some(VmUuid::of(&machine.uid))
}

/// Names of the requests that were made with a token. Those of a machine that joined before we started were never seen.
async fn requests(ctx: &Context, workload: &Workload, namespace: &str, cluster: &str, token: &str) -> Result<Vec<String>, WorkloadError> {
    let seen = ctx.certificates.requests_of(namespace, cluster, token);
    if !seen.is_empty() {
        return Ok(seen);
    }
    let all = csr::list(workload).await?;
    Ok(all.iter().filter(|request| token_of(request).as_deref() == Some(token)).map(ResourceExt::name_any).collect())
}

/// Cluster API deletes the Node of a Machine unless the Cluster is being deleted: then it takes for granted that the API server
/// goes too. Ours stays, so the Node is ours to remove.
fn node_to_delete<'a>(machine: &'a Machine, cluster: &Cluster) -> Option<(&'a str, ProviderId)> {
    cluster.metadata.deletion_timestamp.as_ref()?;
    let id = ProviderId::parse(machine.spec.provider_id.as_deref()?).ok()?;
    let node = machine.status.as_ref()?.node_ref.as_ref()?;
    Some((node.name.as_str(), id)).filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(spec: serde_json::Value, status: serde_json::Value) -> Machine {
        let object = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn cluster(metadata: serde_json::Value) -> Cluster {
        serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata, "spec": {}})).unwrap()
    }

    #[test]
    fn a_node_goes_only_with_its_cluster_and_only_if_it_is_of_ours() {
        let going = cluster(json!({"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let id = "windows://lab/3f2504e0-4f89-51d3-9a0c-0305e82c3301";
        let joined = json!({"nodeRef": {"name": "win-1"}});
        let ours = machine(json!({"providerID": id}), joined.clone());
        assert_eq!(node_to_delete(&ours, &going).map(|(name, id)| (name, id.to_string())), Some(("win-1", id.to_owned())));
        assert_eq!(node_to_delete(&ours, &cluster(json!({"name": "c"}))), None);
        assert_eq!(node_to_delete(&machine(json!({"providerID": "vsphere://x"}), joined), &going), None);
        assert_eq!(node_to_delete(&machine(json!({"providerID": id}), json!({})), &going), None);
    }
}
