//! OBSERVED → DECISION (pure): what to do next, what to report, when to requeue. No client, no clock, no randomness.

pub mod bootstrap_config;
pub mod conditions;
pub mod control_plane;
pub mod definitions;
pub mod hypervisor;
pub mod identity;
pub mod machine;
pub mod network;
pub mod node;
pub mod owner;
pub mod planned;
mod pod;
pub mod pool;
pub mod probes;
pub mod windows_cluster;
pub mod windows_side;
pub mod workload;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use self::owner::{Owner, TargetCluster};
use crate::api::capi;
use crate::api::condition::{ConditionType, Desired, Reason};

/// The next step, the conditions to report, and when to requeue if nothing changes before. What a step may write is said at the top
/// of its controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<S> {
    pub step: S,
    pub conditions: Vec<Desired>,
    pub requeue_after: Option<Duration>,
}

impl<S> Decision<S> {
    pub fn new(step: S) -> Self {
        Self { step, conditions: Vec::new(), requeue_after: None }
    }
    pub fn with_condition(mut self, condition: Desired) -> Self {
        self.conditions.push(condition);
        self
    }
    pub fn requeue_after(mut self, after: Duration) -> Self {
        self.requeue_after = Some(after);
        self
    }
}

/// Where every decision about an object that a Machine asks for begins.
pub enum Gate {
    /// Not ours (yet): nothing may be written, not even status (`docs/design/cluster-api.md#ownership-before-writes`).
    Closed,
    /// Nothing is done, for this reason.
    Paused(String),
    /// It is being deleted.
    Leaving,
    /// It is to live; `ours`: our finalizer is stored.
    Open { ours: bool },
}

/// Whether an object has this finalizer.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|stored| stored == finalizer)
}

impl Gate {
    pub fn of(meta: &ObjectMeta, finalizer: &str, owner: &Owner, cluster: Option<&TargetCluster>) -> Self {
        let ours = has_finalizer(meta, finalizer);
        let deleting = meta.deletion_timestamp.is_some();
        if (owner.is_none() && !deleting) || (deleting && !ours) {
            return Self::Closed;
        }
        match paused(meta, cluster.and_then(TargetCluster::paused_name).as_deref()) {
            Some(why) => Self::Paused(why),
            None if deleting => Self::Leaving,
            None => Self::Open { ours },
        }
    }
}

/// Why an object is paused, as text; `None` when it is not. `paused_cluster`: name of its Cluster, if that is paused (`docs/design/cluster-api.md#paused`).
pub fn paused(meta: &ObjectMeta, paused_cluster: Option<&str>) -> Option<String> {
    let annotated = meta.annotations.as_ref().is_some_and(|a| a.contains_key(capi::PAUSED_ANNOTATION));
    match paused_cluster {
        Some(cluster) => Some(format!("Cluster {cluster} has spec.paused: true")),
        None if annotated => Some(format!("the annotation {} is set", capi::PAUSED_ANNOTATION)),
        None => None,
    }
}

/// The condition that goes with [`paused`].
pub fn paused_condition(why: Option<String>) -> Desired {
    match why {
        Some(why) => Desired::yes(ConditionType::Paused, Reason::Paused).with_message(format!("nothing is done while {why}")),
        None => Desired::no(ConditionType::Paused, Reason::NotPaused, ""),
    }
}

/// Waits shorter than this are not reported: each report is a write, and thousands of machines wait a moment for their turn.
pub const QUIET: Duration = Duration::from_secs(10);

/// How much of [`QUIET`] is left since `since`; `None` when it is over, so that the wait must be reported.
fn quiet_left(since: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let waited = Duration::try_from(now.duration_since(since?)).unwrap_or_default();
    QUIET.checked_sub(waited).filter(|left| !left.is_zero())
}

/// A wait that ends by itself: Ready says so only when it lasts.
pub fn waiting<S>(step: S, meta: &ObjectMeta, why: Reason, message: impl Into<String>, now: Timestamp) -> Decision<S> {
    match quiet_left(created(meta), now) {
        Some(left) => Decision::new(step).requeue_after(left),
        None => Decision::new(step).with_condition(Desired::no(ConditionType::Ready, why, message)),
    }
}

/// When the object was made.
pub fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|t| t.0)
}

/// Whole seconds from `since` to `now`, never negative.
pub fn seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}
