//! The pods that probe new Windows nodes before other pods come.

use std::time::Duration;

use serde_json::Value;

use super::decide::planned::Asked;
use super::decide::probes::{self, report};
use super::decide::windows_side::{contested, without_taint};
use super::writes::{apply, lift_taint, remove};
use crate::api::components::{ProbeTarget, Probes};
use crate::api::condition::Desired;
use crate::api::listing::Listing;
use crate::components::{NAME_SERVERS, SERVICES, probed};
use crate::kube_api::workload::{Workload, WorkloadError};

/// The kinds to read in a cluster with nodes that are to be probed, in addition to pods.
pub fn kinds(asked: &Probes) -> Vec<Listing> {
    let of = |target, kind| (!asked.skip.contains(&target)).then_some(kind);
    let kinds = [of(ProbeTarget::Pod, NAME_SERVERS), of(ProbeTarget::NodePort, SERVICES)];
    kinds.into_iter().flatten().filter(|_| asked.image_in_use().is_some()).collect()
}

/// Carries out the changes to probe pods, and removes the taint from nodes that have passed. `objects` are from the workload cluster.
pub async fn probe(
    workload: &Workload,
    asked: &Asked<'_>,
    found: &probes::Probes<'_>,
    objects: &[Value],
) -> Result<Option<(Desired, Duration)>, WorkloadError> {
    let is_tried = asked.components.probes.image_in_use().is_some();
    // A probe pod is removed after the taint: it proves that the node has passed.
    lift_taint(workload, &found.passed, if is_tried { "a pod there has reached what pods need" } else { "its network is ready" }).await?;
    for pod in &found.remove {
        remove(workload, pod).await?;
    }
    let mut fields = Vec::new();
    for object in &found.make {
        let Some((_, node)) = probed(object) else { continue };
        // A watch may not show yet that the taint was removed.
        if workload.node(&node).await?.as_ref().and_then(without_taint).is_some() {
            fields.extend(apply(workload, &[object], objects, asked.now).await?);
        }
    }
    Ok(contested(&fields).or_else(|| report(found)))
}
