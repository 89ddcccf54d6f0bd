//! The difference between the desired objects and the existing ones.

use std::slice::from_ref;

use serde_json::Value;

use super::objects::possible;
use super::runtime_classes;
use crate::components::place::ObjectRef;
use crate::components::plan::{Taken, outdated, taken};

/// The pending changes to the objects for Windows pods.
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

/// Returns the changes. `desired` has the owner's annotation; `objects` contains all existing objects of the kinds in [`FOR_PODS`](super::FOR_PODS).
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
