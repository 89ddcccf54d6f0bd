//! The triggers for a pass of an ExternalControlPlane.

use std::sync::Arc;

use crate::api::control_plane::ExternalControlPlane;
use crate::engine::caches::Caches;
use crate::engine::triggers::{Triggers, cluster_facts, concerned, named};

pub fn triggers(caches: &Arc<Caches>) -> Triggers<ExternalControlPlane> {
    vec![concerned(caches, &caches.clusters, cluster_facts, |_, cluster| {
        named(cluster.spec.control_plane_ref.as_ref(), "ExternalControlPlane", cluster)
    })]
}
