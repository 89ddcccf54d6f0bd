//! The objects of a cluster, and the kinds that must be read for them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::host::Host;
use super::{policies, runtime_classes};
use crate::api::components::{Policies, RuntimeClassesMode, ValidationMode};
use crate::api::listing::Listing;
use crate::components::place::ObjectRef;

/// The kinds of the objects for Windows pods.
pub const FOR_PODS: [Listing; 3] = [runtime_classes::KIND, policies::POLICY, policies::BINDING];

/// Returns the objects for a cluster with these hosts.
pub fn windows_pods(hosts: &BTreeSet<Host>, policies: &Policies) -> Vec<Value> {
    [wanted_classes(hosts, policies), policies::objects(policies.validation)].concat()
}

/// The RuntimeClasses among [`windows_pods`]: the only objects that depend on the hosts.
pub fn wanted_classes(hosts: &BTreeSet<Host>, policies: &Policies) -> Vec<Value> {
    match policies.runtime_classes {
        RuntimeClassesMode::Auto => runtime_classes::runtime_classes(hosts),
        RuntimeClassesMode::Off => Vec::new(),
    }
}

/// The kinds that must be read: the requested kinds, and the kinds in `there`, which lists the kinds and names of the installed objects.
pub fn wanted_for_pods(policies: &Policies, there: &[String]) -> Vec<Listing> {
    let is_asked = |kind: &Listing| {
        if *kind == runtime_classes::KIND { policies.runtime_classes != RuntimeClassesMode::Off } else { policies.validation != ValidationMode::Off }
    };
    FOR_PODS.into_iter().filter(|kind| is_asked(kind) || is_among(kind.kind, there)).collect()
}

/// Whether one of the objects, given as kind and name, is of this kind.
pub fn is_among(kind: &str, objects: &[String]) -> bool {
    objects.iter().any(|name| name.split(' ').next() == Some(kind))
}

/// All objects that [`windows_pods`] may return for any cluster.
pub fn possible() -> Vec<(Listing, ObjectRef)> {
    let once = |kind: Listing, name: &str| (kind, ObjectRef::new(kind.kind, None, name));
    let classes = runtime_classes::names().map(|name| once(runtime_classes::KIND, &name));
    // The binding is deleted first, because the policy has no effect without it.
    let policies = policies::names().flat_map(|name| [once(policies::BINDING, name), once(policies::POLICY, name)]);
    classes.chain(policies).collect()
}
