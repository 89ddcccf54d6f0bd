//! How long a drain may take, and the machines whose Nodes are not drained.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::machine::WindowsMachine;
use crate::api::pool::Drain;

/// An annotation of core, on the WindowsMachine: its Node is not drained.
pub const EXCLUDE_ANNOTATION: &str = "machine.cluster.x-k8s.io/exclude-node-draining";

/// When a drain ends although pods are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time after which the machine is removed although pods are left; `None`: never.
    pub whole: Option<Duration>,
    /// The time from the end of a pod's grace period until the pod is deleted by force; `None`: never.
    pub hung: Option<Duration>,
}

impl Limits {
    pub fn of(drain: &Drain) -> Self {
        let limit = |seconds: i64| (seconds > 0).then(|| Duration::from_secs(seconds.unsigned_abs()));
        Self { whole: limit(drain.timeout_seconds), hung: limit(drain.hung_pod_seconds) }
    }
}

/// Whether the annotation excludes the machine's Node from draining.
pub fn is_excluded(object: &WindowsMachine) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(EXCLUDE_ANNOTATION))
}

/// Returns when the Node of a machine began to delay its removal, by our own clock.
pub fn since(object: &WindowsMachine, now: Timestamp) -> Timestamp {
    let noted = object.status.as_ref().and_then(|status| status.draining_since.as_ref());
    noted.map_or(now, |since| since.0)
}

/// Whether the time for the drain has passed: then the machine is removed even if its Node cannot be reached.
pub fn is_over(object: &WindowsMachine, limits: &Limits, now: Timestamp) -> bool {
    is_excluded(object) || limits.whole.is_some_and(|whole| elapsed(since(object, now), now) >= whole)
}

pub(in crate::domain::node) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default()
}
