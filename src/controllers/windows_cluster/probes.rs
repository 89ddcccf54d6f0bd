//! The pods that try out new Windows nodes before other pods come.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::windows_side::{apply, lift_taint, remove};
use crate::api::components::{Components, ProbeTarget, Probes};
use crate::api::condition::Desired;
use crate::api::listing::Listing;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::{LinuxSide, NAME_SERVERS, Probe, SERVICES, owned, probed};
use crate::lifecycle::probes::{probes, report, unneeded};
use crate::lifecycle::windows_side::without_taint;

/// What came of them.
pub struct Probed {
    /// How many nodes are not verified yet.
    pub waiting: usize,
    pub said: Option<(Desired, Duration)>,
}

/// What to read of a cluster with nodes that are to be tried out, besides pods.
pub fn kinds(asked: &Probes) -> Vec<Listing> {
    let of = |target, kind| (!asked.skip.contains(&target)).then_some(kind);
    let kinds = [of(ProbeTarget::Pod, NAME_SERVERS), of(ProbeTarget::NodePort, SERVICES)];
    kinds.into_iter().flatten().filter(|_| asked.image_in_use().is_some()).collect()
}

/// Tries out the nodes, which have the taint, and takes it from those that pass. `objects` are those of the workload cluster, with those of [`kinds`].
pub async fn probe(
    workload: &Workload,
    side: &LinuxSide,
    nodes: &[String],
    objects: &[Value],
    asked: &Components,
    owner: &str,
    now: Timestamp,
) -> Result<Probed, WorkloadError> {
    let Some(image) = asked.probes.image_in_use() else {
        lift_taint(workload, nodes, "its network is ready").await?;
        remove_all(workload, &unneeded(objects)).await?;
        return Ok(Probed { waiting: 0, said: None });
    };
    let probe = Probe::new(image, asked.images.pull_secret_names(), &asked.probes, side, objects);
    let found = probes(nodes, &side.nodes, &probe, objects, now);
    // A pod goes after the taint: it shows that the node has passed.
    lift_taint(workload, &found.passed, "a pod there has reached what pods need").await?;
    remove_all(workload, &found.remove).await?;
    let (waiting, said) = (nodes.len() - found.passed.len(), report(&found));
    make(workload, &owned(found.make, owner)).await?;
    Ok(Probed { waiting, said })
}

/// Makes them for nodes that have the taint still: a watch may not show yet that it is gone.
async fn make(workload: &Workload, objects: &[Value]) -> Result<(), WorkloadError> {
    for object in objects {
        let Some((_, node)) = probed(object) else { continue };
        if workload.node(&node).await?.as_ref().and_then(without_taint).is_some() {
            apply(workload, &[object]).await?;
        }
    }
    Ok(())
}

async fn remove_all(workload: &Workload, pods: &[&Value]) -> Result<(), WorkloadError> {
    for pod in pods {
        remove(workload, pod).await?;
    }
    Ok(())
}
