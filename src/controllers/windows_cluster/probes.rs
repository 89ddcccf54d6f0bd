//! The pods that try out new Windows nodes before other pods come.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::windows_side::{apply, lift_taint, remove};
use crate::api::components::Components;
use crate::api::condition::Desired;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::{LinuxSide, NAME_SERVERS, Probe, SERVICES, owned};
use crate::lifecycle::probes::{probes, report, unneeded};

/// What came of them.
pub struct Probed {
    /// How many nodes are not verified yet.
    pub waiting: usize,
    pub said: Option<(Desired, Duration)>,
}

/// Tries out the nodes, which have the taint, and takes it from those that pass. `pods` are those of what CAPW brings.
pub async fn probe(
    workload: &Workload,
    side: &LinuxSide,
    nodes: &[String],
    pods: &[&Value],
    asked: &Components,
    owner: &str,
    now: Timestamp,
) -> Result<Probed, WorkloadError> {
    let Some(image) = asked.probes.image_in_use() else {
        lift_taint(workload, nodes, "its network is ready").await?;
        remove_all(workload, &unneeded(pods)).await?;
        return Ok(Probed { waiting: 0, said: None });
    };
    let listed = async |listing| Ok::<_, WorkloadError>(workload.objects(listing).await?.unwrap_or_default());
    // Only a pod on a new node needs them.
    let (slices, services) = if nodes.is_empty() { (Vec::new(), Vec::new()) } else { (listed(&NAME_SERVERS).await?, listed(&SERVICES).await?) };
    let probe = Probe::new(image, asked.images.pull_secret_names(), &asked.probes, side, &slices);
    let live: Vec<&Value> = pods.iter().copied().chain(&services).collect();
    let found = probes(nodes, &side.nodes, &probe, &live, now);
    // A pod goes after the taint: it shows that the node has passed.
    lift_taint(workload, &found.passed, "a pod there has reached what pods need").await?;
    remove_all(workload, &found.remove).await?;
    let probed = Probed { waiting: nodes.len() - found.passed.len(), said: report(&found) };
    let made = owned(found.make, owner);
    apply(workload, &made.iter().collect::<Vec<_>>()).await?;
    Ok(probed)
}

async fn remove_all(workload: &Workload, pods: &[&Value]) -> Result<(), WorkloadError> {
    for pod in pods {
        remove(workload, pod).await?;
    }
    Ok(())
}
