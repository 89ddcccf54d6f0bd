//! Whether CAPW may act on an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::owner::{Owner, TargetCluster};
use crate::api::capi;
use crate::api::condition::{ConditionType, Desired, Reason};

/// The first result of every decision about an object that a Machine requests.
pub enum Gate {
    /// Not ours (yet): nothing may be written, not even status (`docs/design/cluster-api.md#ownership-before-writes`).
    Closed,
    /// The object is paused, for this reason.
    Paused(String),
    /// The object is being deleted.
    Leaving,
    /// The object is in use; `ours`: our finalizer is stored.
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

/// Returns why an object is paused; `None` if it is not. `paused_cluster`: the name of its Cluster, if that is paused
/// (`docs/design/cluster-api.md#paused`).
pub fn paused(meta: &ObjectMeta, paused_cluster: Option<&str>) -> Option<String> {
    let annotated = meta.annotations.as_ref().is_some_and(|a| a.contains_key(capi::PAUSED_ANNOTATION));
    match paused_cluster {
        Some(cluster) => Some(format!("Cluster {cluster} has spec.paused: true")),
        None if annotated => Some(format!("the annotation {} is set", capi::PAUSED_ANNOTATION)),
        None => None,
    }
}

/// Returns the Paused condition for the result of [`paused`].
pub fn paused_condition(why: Option<String>) -> Desired {
    match why {
        Some(why) => Desired::yes(ConditionType::Paused, Reason::Paused).with_message(format!("nothing is done while {why}")),
        None => Desired::no(ConditionType::Paused, Reason::NotPaused, ""),
    }
}
