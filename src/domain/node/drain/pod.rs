//! How one pod affects a drain.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};

use super::step::Victim;
use crate::api::capi::DRAIN_LABEL;

/// The annotation of a mirror pod, which represents a static pod in the API server.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The time after its grace period when a pod on an unreachable Node is no longer waited for (as in core).
const GONE_WITH_ITS_NODE: Duration = Duration::from_secs(1);
/// The delay that a kubelet may have before its pod counts as hung.
const LATE: Duration = Duration::from_secs(5);

/// A pod with only the fields that a drain reads, because the API server decides how large a pod is.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = Pod)]
pub struct PodOnNode {
    #[serde(default, deserialize_with = "needed")]
    pub metadata: ObjectMeta,
    pub spec: Option<PodSpec>,
    pub status: Option<PodStatus>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PodSpec {
    volumes: Option<Vec<Volume>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    persistent_volume_claim: Option<Present>,
    ephemeral: Option<Present>,
}

/// An object whose fields are not read.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Present {}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PodStatus {
    pub phase: Option<String>,
}

/// Decodes only the metadata that the rules of this file read.
fn needed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut meta = ObjectMeta::deserialize(deserializer)?;
    for (entries, read) in [(&mut meta.labels, DRAIN_LABEL), (&mut meta.annotations, MIRROR_ANNOTATION)] {
        entries.iter_mut().for_each(|entries| entries.retain(|key, _| key == read));
    }
    meta.owner_references.iter_mut().for_each(|owners| owners.retain(|owner| owner.controller == Some(true)));
    Ok(ObjectMeta { managed_fields: None, finalizers: None, ..meta })
}

/// The state of a pod in a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// The pod ends with its Node, and the drain does not wait for it.
    Stays,
    Runs,
    /// The pod was deleted and is terminating.
    Ends,
    /// The pod should have ended. It is deleted by force after `force_in`, at once if that is zero, never if that is `None`.
    Hangs {
        force_in: Option<Duration>,
    },
    /// The drain waits until the pod finishes.
    Completes,
}

/// Returns the state of a pod. `ending`: how long ago it was first observed to terminate. The API server stores the end of its grace period by
/// another clock than ours.
pub fn stand(pod: &PodOnNode, hung: Option<Duration>, unreachable: bool, ending: Duration) -> Stand {
    let drain = pod.metadata.labels.as_ref().and_then(|l| l.get(DRAIN_LABEL)).map(|value| value.replacen('-', "", 1).to_lowercase());
    if is_finished(pod) || is_mirror(pod) || is_of_daemon_set(pod) || drain.as_deref() == Some("skip") {
        return Stand::Stays;
    }
    if pod.metadata.deletion_timestamp.is_none() {
        return if drain.as_deref() == Some("waitcompleted") { Stand::Completes } else { Stand::Runs };
    }
    let grace = pod.metadata.deletion_grace_period_seconds;
    let late = ending.saturating_sub(Duration::from_secs(grace.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default()));
    let forced = grace == Some(0);
    let due = hung.map(|hung| hung.saturating_sub(late));
    match due {
        _ if unreachable && late > GONE_WITH_ITS_NODE => Stand::Stays,
        // The pod was already deleted by force: only a finalizer keeps the object.
        Some(due) if forced && due.is_zero() => Stand::Stays,
        _ if late > LATE || due.is_some_and(|due| due.is_zero()) => Stand::Hangs { force_in: due },
        _ => Stand::Ends,
    }
}

pub fn victim(pod: &PodOnNode) -> Option<Victim> {
    let meta = &pod.metadata;
    Some(Victim { namespace: meta.namespace.clone()?, name: meta.name.clone()?, uid: meta.uid.clone()? })
}

/// Whether no controller recreates the pod elsewhere.
pub fn is_without_controller(pod: &PodOnNode) -> bool {
    controller(pod).is_none()
}

/// Whether an unfinished pod holds volumes, which are not detached while the pod stays.
pub fn holds_volumes(pod: &PodOnNode) -> bool {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    !is_finished(pod) && volumes.iter().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}

fn is_finished(pod: &PodOnNode) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn is_mirror(pod: &PodOnNode) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR_ANNOTATION))
}

/// Pods of a DaemonSet tolerate a cordoned Node, and would be recreated at once.
fn is_of_daemon_set(pod: &PodOnNode) -> bool {
    controller(pod) == Some("DaemonSet")
}

fn controller(pod: &PodOnNode) -> Option<&str> {
    pod.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true)).map(|o| o.kind.as_str())
}
