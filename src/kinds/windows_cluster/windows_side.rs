//! The objects that CAPW brings for the Windows nodes of a workload cluster: applied if the WindowsCluster requires it, and removed afterwards.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::Value;

use super::context::Context;
use super::decide::planned::{Asked, Hindrance};
use super::decide::windows_side::{announced, applied, both, contested, may_be_there, not_deployed, not_removed, report, tainted};
use super::probes::{self, probe};
use super::windows_pods;
use super::writes::{apply, lift_taint, now, remove};
use crate::api::cluster::WindowsCluster;
use crate::api::components::{ComponentPart, Components, ComponentsMode, Policies};
use crate::api::condition::{Desired, Reason};
use crate::api::listing::Listing;
use crate::components::{LinuxSide, OF_NETWORK, ObjectRef, PODS, brought_by_another, read, removed, taken, wanted_for_pods};
use crate::domain::owner::TargetCluster;
use crate::engine::workload_clusters::fault;
use crate::kube_api::workload::{Workload, WorkloadError};

/// Nodes that may have the taint.
const NODES: Listing = Listing::new("", "v1", "Node", "nodes").with_labels("kubernetes.io/os=windows");

/// The pods of Calico's DaemonSet for Windows nodes.
const CALICO_PODS: Listing = Listing::new("", "v1", "Pod", "pods").with_labels("app.kubernetes.io/name=calico-node-windows");

/// The kinds to read before components are brought. `there`: kind and name of each object that was brought for pods.
pub fn kinds(side: &LinuxSide, asked: &Components, there: &[String]) -> Vec<Listing> {
    let calico = brought_by_another(side).map(|_| CALICO_PODS);
    let new = tainted(&side.nodes);
    let of_probes = if new.is_empty() { Vec::new() } else { probes::kinds(&asked.probes) };
    let brought = OF_NETWORK.into_iter().chain([PODS]).chain(calico).chain(of_probes);
    brought.chain(wanted_for_pods(&asked.policies, there)).collect()
}

/// The report about all components, and when to check them again.
pub struct Brought {
    pub parts: Vec<ComponentPart>,
    pub objects: Vec<String>,
    pub verified: Option<String>,
    pub condition: Desired,
    pub requeue_after: Duration,
}

/// The report about the network.
struct Network {
    parts: Vec<ComponentPart>,
    verified: Option<String>,
    said: (Desired, Duration),
}

impl Network {
    /// Keeps the known parts in the report: they still exist.
    fn nothing(object: &WindowsCluster, hindrance: Hindrance) -> Self {
        Self { parts: object.parts().to_vec(), verified: None, said: not_deployed(hindrance.reason, hindrance.why) }
    }
}

/// The owner that objects of a workload cluster are marked with.
pub fn owner(object: &WindowsCluster) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The requested components of this cluster.
fn asked<'a>(
    ctx: &Context,
    workload: &Workload,
    objects: &[Value],
    side: &'a LinuxSide,
    object: &WindowsCluster,
    cluster: &TargetCluster,
) -> Asked<'a> {
    let endpoint = cluster.endpoint.as_ref().map(|endpoint| format!("https://{}:{}", endpoint.host, endpoint.port));
    Asked {
        side,
        components: object.spec.components.clone().unwrap_or_default(),
        owner: owner(object),
        image: ctx.image.clone(),
        api_server: endpoint.unwrap_or_else(|| workload.server.clone()),
        hosts: windows_pods::hosts(&ctx.caches, &cluster.cluster, objects),
        now: ctx.management.now(),
    }
}

/// The pending writes in a mode that does not write: one line each. `objects` are from the workload cluster, as [`bring`] needs them.
pub async fn planned(
    ctx: &Context,
    workload: &Workload,
    objects: &[Value],
    side: &LinuxSide,
    object: &WindowsCluster,
    cluster: &TargetCluster,
) -> Result<Vec<String>, WorkloadError> {
    let asked = asked(ctx, workload, objects, side, object, cluster);
    let desired = asked.desired();
    // The name of an object that is not among CAPW's own may belong to another owner.
    let unseen: Vec<&Value> = desired.iter().filter(|desired| ObjectRef::of(desired).find(objects).is_none()).collect();
    Ok(asked.said(&now(workload, objects, &unseen).await?))
}

/// Brings the network, and what pods need on any network. `objects` are from the workload cluster, including the pods and the kinds of components.
pub async fn bring(
    ctx: &Context,
    workload: &Workload,
    objects: &[Value],
    side: &LinuxSide,
    object: &WindowsCluster,
    cluster: &TargetCluster,
) -> Result<Brought, WorkloadError> {
    let asked = asked(ctx, workload, objects, side, object, cluster);
    let network = bring_network(workload, objects, object, &asked).await?;
    let for_pods = windows_pods::bring(workload, objects, object, &asked).await?;
    let (condition, requeue_after) = both(network.said, for_pods.said);
    Ok(Brought { parts: network.parts, objects: for_pods.objects, verified: network.verified, condition, requeue_after })
}

/// Applies missing and outdated objects of the network, and reports the progress.
async fn bring_network(workload: &Workload, objects: &[Value], object: &WindowsCluster, asked: &Asked<'_>) -> Result<Network, WorkloadError> {
    let desired = match asked.network() {
        Ok(desired) => desired,
        Err(hindrance) => {
            lift_taint(workload, &hindrance.freed, "CAPW does not bring its network").await?;
            return Ok(Network::nothing(object, hindrance));
        }
    };
    let seen = match asked.of_network(&desired, objects) {
        Ok(seen) => seen,
        Err(hindrance) => return Ok(Network::nothing(object, hindrance)),
    };
    let objects: &[Value] = &now(workload, objects, &seen.outdated).await?;
    let plan = match asked.of_network(&desired, objects) {
        Ok(plan) => plan,
        Err(hindrance) => return Ok(Network::nothing(object, hindrance)),
    };
    let said = match plan.outdated.len() {
        0 => report(&plan.parts),
        // Parts are recorded in the status before they are created, so that they can be removed later.
        count if object.parts().is_empty() => announced(count),
        count => contested(&apply(workload, &plan.outdated, objects, asked.now).await?).unwrap_or_else(|| applied(count)),
    };
    let said = match probe(workload, asked, &plan.probes, objects).await? {
        Some(of_probes) => both(said, of_probes),
        None => said,
    };
    let verified = plan.verification.verified - plan.verification.tainted.len() + plan.probes.passed.len();
    Ok(Network { parts: plan.parts, verified: Some(format!("{verified}/{}", plan.verification.nodes)), said })
}

/// Removes all components, if there were any. Returns what is left, and when to try again; `None` if nothing is left. Fails while an answer
/// is pending.
pub async fn teardown(ctx: &Context, object: &WindowsCluster, cluster: &TargetCluster) -> Result<Option<Brought>, WorkloadError> {
    if !may_be_there(object) {
        return Ok(None);
    }
    let name = &cluster.cluster;
    let left = async {
        let workload = ctx.clusters.get(name).await?;
        take_away(&workload, object).await?;
        free_nodes(&workload).await
    };
    let Err(error) = left.await else { return Ok(None) };
    if error.is_pending() {
        return Err(error);
    }
    ctx.clusters.note_error(name, &error).await;
    let reason = fault(&error).map_or(Reason::NotRemoved, |fault| fault.reason());
    let (condition, requeue_after) = not_removed(reason, &error.to_string());
    let requeue_after = requeue_after.max(error.not_before());
    Ok(Some(Brought { parts: object.parts().to_vec(), objects: object.objects().to_vec(), verified: None, condition, requeue_after }))
}

/// Removes all objects of this WindowsCluster. Objects of other owners stay. A forbidden request does not stop the other removals.
pub async fn take_away(workload: &Workload, object: &WindowsCluster) -> Result<(), WorkloadError> {
    let owner = owner(object);
    let mut forbidden = None;
    for (kind, of) in removed(&kinds_for_pods(object)) {
        match remove_if_ours(workload, &kind, &of.name, &owner).await {
            Err(error @ WorkloadError::Forbidden { .. }) => forbidden = forbidden.or(Some(error)),
            removed => removed?,
        }
    }
    forbidden.map_or(Ok(()), Err)
}

/// Removes the taint from nodes whose network was not ready: nothing else would remove it.
async fn free_nodes(workload: &Workload) -> Result<(), WorkloadError> {
    let nodes = workload.objects(&NODES).await?.unwrap_or_default();
    lift_taint(workload, &tainted(&read(&nodes).nodes), "CAPW does not bring its network any more").await
}

/// The kinds that may have been brought for pods: the kinds in the status, and the requested kinds, because a move drops the status.
fn kinds_for_pods(object: &WindowsCluster) -> Vec<Listing> {
    let asked = object.spec.components.as_ref().filter(|components| components.mode == ComponentsMode::Auto);
    wanted_for_pods(asked.map_or(&Policies::OFF, |components| &components.policies), object.objects())
}

/// Reads the object, and removes it if this owner owns it.
async fn remove_if_ours(workload: &Workload, kind: &Listing, name: &str, owner: &str) -> Result<(), WorkloadError> {
    match workload.object(kind, None, name).await? {
        Some(found) if taken(&found, owner).is_ok() => remove(workload, &found).await,
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
