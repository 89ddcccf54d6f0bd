//! The objects for pods on Windows nodes, which do not depend on the network (pure): a RuntimeClass for each release of Windows Server, and policies
//! that detect pods that cannot work there.

mod policies;
mod runtime_classes;

use std::collections::BTreeSet;
use std::slice::from_ref;

use serde_json::Value;

pub use self::policies::{Effect, RULES as POD_RULES};
use super::linux_side::is_windows;
use super::objects::Objects;
use super::place::{ObjectRef, Place};
use super::plan::{Taken, outdated, taken};
use crate::api::bootstrap_config::{BUILD_LABEL, HYPER_V_LABEL, WindowsBootstrapConfigSpec, WindowsRelease};
use crate::api::components::{Policies, RuntimeClassesMode, ValidationMode};
use crate::api::listing::Listing;

/// The kinds of the objects for Windows pods.
pub const FOR_PODS: [Listing; 3] = [runtime_classes::KIND, policies::POLICY, policies::BINDING];

/// The properties of a Windows node that matter to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    pub release: WindowsRelease,
    /// Whether pods may use Hyper-V isolation.
    pub hyper_v: bool,
}

impl Host {
    /// The host that a machine with this configuration becomes.
    pub fn configured(spec: &WindowsBootstrapConfigSpec) -> Self {
        Self { release: spec.windows_release, hyper_v: spec.windows.hyper_v_isolation }
    }

    /// The Windows nodes among these objects. Nodes with a release that CAPW does not know are skipped.
    pub fn joined(objects: &[Value]) -> BTreeSet<Self> {
        Objects::new(objects).of("", "Node").iter().filter(|node| is_windows(node)).filter_map(Self::of_node).collect()
    }

    fn of_node(node: &Place<'_>) -> Option<Self> {
        let label = |key: &str| node.at("metadata").at("labels").at(key).text();
        let version = label(BUILD_LABEL)?;
        let release = WindowsRelease::ALL.into_iter().find(|release| release.version() == version)?;
        Some(Self { release, hyper_v: label(HYPER_V_LABEL).as_deref() == Some("true") })
    }
}

/// Returns the objects for a cluster with these hosts.
pub fn windows_pods(hosts: &BTreeSet<Host>, policies: &Policies) -> Vec<Value> {
    let classes = match policies.runtime_classes {
        RuntimeClassesMode::Auto => runtime_classes::runtime_classes(hosts),
        RuntimeClassesMode::Off => Vec::new(),
    };
    [classes, policies::objects(policies.validation)].concat()
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

/// The changes to make to the objects for Windows pods.
#[derive(Debug, Default, PartialEq)]
pub struct Changes<'a> {
    /// The desired objects that exist or will exist.
    pub kept: Vec<ObjectRef>,
    /// The desired objects that are missing or outdated.
    pub outdated: Vec<&'a Value>,
    /// The objects to delete before the desired ones can be applied, because an immutable field differs.
    pub replaced: Vec<&'a Value>,
    /// The objects of this owner that are no longer desired.
    pub unneeded: Vec<&'a Value>,
    /// The reasons why the remaining desired objects are not touched.
    pub taken: Vec<Taken>,
}

/// Returns the changes. `desired` has the owner's annotation; `objects` contains all existing objects of the kinds in [`FOR_PODS`].
pub fn changes<'a>(desired: &'a [Value], objects: &'a [Value], owner: &str) -> Changes<'a> {
    let mut changes = Changes::default();
    for wanted in desired {
        let of = ObjectRef::of(wanted);
        let live = of.find(objects);
        match outdated(from_ref(wanted), objects, owner) {
            Ok(outdated) => {
                changes.kept.push(of);
                changes.replaced.extend(live.filter(|live| !runtime_classes::may_become(live, wanted)));
                changes.outdated.extend(outdated);
            }
            Err(why) => changes.taken.push(why),
        }
    }
    let possible = possible();
    let is_desired = |of: &ObjectRef| desired.iter().any(|wanted| ObjectRef::of(wanted) == *of);
    let is_unneeded = |object: &&Value| {
        let of = ObjectRef::of(object);
        possible.iter().any(|(_, possible)| *possible == of) && !is_desired(&of) && taken(object, owner).is_ok()
    };
    changes.unneeded = objects.iter().filter(is_unneeded).collect();
    changes
}
