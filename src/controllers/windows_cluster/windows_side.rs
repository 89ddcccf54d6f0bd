//! What CAPW brings to the Windows nodes of a workload cluster: applied where the WindowsCluster asks for it, removed when it asks no more.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::Preconditions;
use serde_json::Value;

use super::probes::{Probed, probe};
use super::{Context, probes, windows_pods};
use crate::api::cluster::WindowsCluster;
use crate::api::components::{ComponentPart, Components, ComponentsMode, Policies, UNVERIFIED_TAINT};
use crate::api::condition::{Desired, Reason};
use crate::api::listing::Listing;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::{
    LinuxSide, OF_NETWORK, ObjectRef, PODS, Parameters, Refusal, Role, Taken, brought_by_another, kind_of, outdated, owned, read, removed, taken,
    wanted_for_pods, windows_side,
};
use crate::controllers::runtime::workload_clusters::fault;
use crate::lifecycle::owner::TargetCluster;
use crate::lifecycle::windows_side::{
    announced, applied, both, may_be_there, missing, not_brought, not_removed, part, report, tainted, verify, without_taint,
};

/// Nodes that may have the taint.
const NODES: Listing = Listing::new("", "v1", "Node", "nodes").with_labels("kubernetes.io/os=windows");

/// The pods of Calico's DaemonSet for Windows nodes.
const CALICO_PODS: Listing = Listing::new("", "v1", "Pod", "pods").with_labels("app.kubernetes.io/name=calico-node-windows");

/// The kinds of which to know what there is, to bring what is asked for. `there`: kind and name of each object that was brought for pods.
pub fn kinds(side: &LinuxSide, asked: &Components, there: &[String]) -> Vec<Listing> {
    let calico = brought_by_another(side).map(|_| CALICO_PODS);
    let new = tainted(&side.nodes);
    let of_probes = if new.is_empty() { Vec::new() } else { probes::kinds(&asked.probes) };
    let brought = OF_NETWORK.into_iter().chain([PODS]).chain(calico).chain(of_probes);
    brought.chain(wanted_for_pods(&asked.policies, there)).collect()
}

/// What is to be said of all that is brought, and when to look at it again.
pub struct Brought {
    pub parts: Vec<ComponentPart>,
    pub objects: Vec<String>,
    pub verified: Option<String>,
    pub condition: Desired,
    pub look_again: Duration,
}

/// What is to be said of the network.
struct Network {
    parts: Vec<ComponentPart>,
    verified: Option<String>,
    said: (Desired, Duration),
}

impl Network {
    /// What was brought before stays known: it is there still.
    fn nothing(object: &WindowsCluster, reason: Reason, why: String) -> Self {
        Self { parts: object.parts().to_vec(), verified: None, said: not_brought(reason, why) }
    }
}

/// For whom objects of a workload cluster are.
pub fn owner(object: &WindowsCluster) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Brings the network, and what pods need on any network. `objects` are those of the workload cluster, with the pods and the kinds of what is brought.
pub async fn bring(
    ctx: &Context,
    workload: &Workload,
    objects: &[Value],
    side: &LinuxSide,
    object: &WindowsCluster,
    cluster: &TargetCluster,
) -> Result<Brought, WorkloadError> {
    let network = bring_network(ctx, workload, objects, side, object, cluster).await?;
    let for_pods = windows_pods::bring(ctx, workload, objects, object, &cluster.cluster).await?;
    let (condition, look_again) = both(network.said, for_pods.said);
    Ok(Brought { parts: network.parts, objects: for_pods.objects, verified: network.verified, condition, look_again })
}

/// Applies what is not there as it shall be, and says how far it is.
async fn bring_network(
    ctx: &Context,
    workload: &Workload,
    objects: &[Value],
    side: &LinuxSide,
    object: &WindowsCluster,
    cluster: &TargetCluster,
) -> Result<Network, WorkloadError> {
    let Some(image) = ctx.image.clone() else {
        let why = "CAPW does not know its own image, whose part for Windows the pods run: name it in the variable CAPW_IMAGE of its Deployment";
        return Ok(Network::nothing(object, Reason::ImageUnknown, why.into()));
    };
    let endpoint =
        cluster.endpoint.as_ref().map_or_else(|| workload.server.clone(), |endpoint| format!("https://{}:{}", endpoint.host, endpoint.port));
    let owner = owner(object);
    let asked = object.spec.components.clone().unwrap_or_default();
    let pull_secrets = asked.images.pull_secret_names();
    let desired = match windows_side(side, &Parameters { image, api_server: endpoint, pull_secrets }) {
        Ok(objects) => owned(objects, &owner),
        Err(refusal) => {
            let mut why = refusal.to_string();
            match refusal {
                Refusal::NotOurs { role: Role::Refuse, .. } => {
                    why = format!(
                        "{why} New nodes keep the taint {UNVERIFIED_TAINT}, since pods would hang there; set mode to \"Off\" to take it away"
                    );
                }
                Refusal::NotOurs { .. } | Refusal::KubeProxyRuns(_) => {
                    lift_taint(workload, &tainted(&side.nodes), "CAPW does not bring its network").await?;
                }
                _ => {}
            }
            return Ok(Network::nothing(object, Reason::NotBrought, why));
        }
    };
    let (objects, outdated) = match outdated_now(workload, &desired, objects, &owner).await? {
        Ok(read) => read,
        Err(why) => return Ok(Network::nothing(object, Reason::NameTaken, why.to_string())),
    };
    let objects: &[Value] = &objects;
    let sets = desired.iter().filter(|object| is(object, "DaemonSet")).map(|set| ObjectRef::of(set).find(objects).unwrap_or(set));
    let pods: Vec<&Value> = objects.iter().filter(|object| is(object, "Pod")).collect();
    let brought = sets.map(|set| part(set, &pods));
    let parts: Vec<ComponentPart> = by_another(objects, side, &pods).into_iter().chain(brought).collect();
    let verification = verify(&side.nodes, &parts, &pods);
    let said = match outdated.len() {
        0 => report(&parts),
        // What is removed later is known before it is there.
        count if object.parts().is_empty() => announced(count),
        count => {
            apply(workload, &outdated).await?;
            applied(count)
        }
    };
    let Probed { waiting, said: of_probes } = probe(workload, side, &verification.tainted, objects, &asked, &owner, ctx.management.now()).await?;
    let said = match of_probes {
        Some(of_probes) => both(said, of_probes),
        None => said,
    };
    Ok(Network { parts, verified: Some(format!("{}/{}", verification.verified - waiting, verification.nodes)), said })
}

/// The objects as they are now, and those of the desired ones that are not there as they shall be.
async fn outdated_now<'a>(
    workload: &Workload,
    desired: &'a [Value],
    objects: &'a [Value],
    owner: &str,
) -> Result<Result<(Cow<'a, [Value]>, Vec<&'a Value>), Taken>, WorkloadError> {
    let seen = match outdated(desired, objects, owner) {
        Ok(seen) => seen,
        Err(why) => return Ok(Err(why)),
    };
    let objects = now(workload, objects, &seen).await?;
    Ok(outdated(desired, &objects, owner).map(|outdated| (objects, outdated)))
}

/// The network as a part, where another brings it.
fn by_another(objects: &[Value], side: &LinuxSide, pods: &[&Value]) -> Option<ComponentPart> {
    let of = brought_by_another(side)?;
    Some(of.find(objects).map_or_else(|| missing(&of), |set| part(set, pods)))
}

pub fn is(object: &Value, kind: &str) -> bool {
    object.get("kind").is_some_and(|found| found == kind)
}

pub async fn apply(workload: &Workload, objects: &[&Value]) -> Result<(), WorkloadError> {
    for object in objects {
        if let Some(kind) = kind_of(object) {
            let of = ObjectRef::of(object);
            workload.apply_object(&kind, of.namespace.as_deref(), &of.name, object).await?;
        }
    }
    Ok(())
}

/// The objects, of which these are read again: a watch may not show yet what CAPW itself has written.
pub async fn now<'a>(workload: &Workload, objects: &'a [Value], these: &[&Value]) -> Result<Cow<'a, [Value]>, WorkloadError> {
    if these.is_empty() {
        return Ok(Cow::Borrowed(objects));
    }
    let these: BTreeMap<ObjectRef, Listing> = these.iter().filter_map(|object| Some((ObjectRef::of(object), kind_of(object)?))).collect();
    let mut now: Vec<Value> = objects.iter().filter(|object| !these.contains_key(&ObjectRef::of(object))).cloned().collect();
    for (of, kind) in these {
        now.extend(workload.object(&kind, of.namespace.as_deref(), &of.name).await?);
    }
    Ok(Cow::Owned(now))
}

/// Removes what was brought, if anything was. The value says what is left, and when to try again; `None`: nothing is. An error: an answer is
/// awaited.
pub async fn leave(ctx: &Context, object: &WindowsCluster, cluster: &TargetCluster) -> Result<Option<Brought>, WorkloadError> {
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
    ctx.clusters.doubt(name, &error).await;
    let reason = fault(&error).map_or(Reason::NotRemoved, |fault| fault.reason());
    let (condition, look_again) = not_removed(reason, &error.to_string());
    let look_again = look_again.max(error.not_before());
    Ok(Some(Brought { parts: object.parts().to_vec(), objects: object.objects().to_vec(), verified: None, condition, look_again }))
}

/// Removes all that was brought for this WindowsCluster. What is not its own stays, and what is forbidden keeps nothing else from going.
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

/// Takes the taint from nodes whose network was not ready: nothing else would.
async fn free_nodes(workload: &Workload) -> Result<(), WorkloadError> {
    let nodes = workload.objects(&NODES).await?.unwrap_or_default();
    lift_taint(workload, &tainted(&read(&nodes).nodes), "CAPW does not bring its network any more").await
}

/// The kinds of what may have been brought for pods: those that the status knows, and those that are asked for, because a move takes the status away.
fn kinds_for_pods(object: &WindowsCluster) -> Vec<Listing> {
    let asked = object.spec.components.as_ref().filter(|components| components.mode == ComponentsMode::Auto);
    wanted_for_pods(asked.map_or(&Policies::OFF, |components| &components.policies), object.objects())
}

/// Reads the object, and removes it if it is that of this owner.
async fn remove_if_ours(workload: &Workload, kind: &Listing, name: &str, owner: &str) -> Result<(), WorkloadError> {
    match workload.object(kind, None, name).await? {
        Some(found) if taken(&found, owner).is_ok() => remove(workload, &found).await,
        _ => Ok(()),
    }
}

/// Removes an object of the cluster as it was read: one that has changed since stays, and so does another one of its name.
pub async fn remove(workload: &Workload, object: &Value) -> Result<(), WorkloadError> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    if let (Some(kind), Some(uid)) = (kind_of(object), text("/metadata/uid")) {
        let of = ObjectRef::of(object);
        let only = Preconditions { uid: Some(uid), resource_version: text("/metadata/resourceVersion") };
        workload.delete_object(&kind, of.namespace.as_deref(), &of.name, only).await?;
        tracing::info!(endpoint = workload.server, "{of} is removed");
    }
    Ok(())
}

pub async fn lift_taint(workload: &Workload, nodes: &[String], why: &str) -> Result<(), WorkloadError> {
    for name in nodes {
        workload.change_node(name, without_taint).await?;
        tracing::info!(endpoint = workload.server, node = name, "the taint of the node goes: {why}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
