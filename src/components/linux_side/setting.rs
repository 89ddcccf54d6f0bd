//! A setting of Calico, with the object and the field that have it.

use crate::components::place::{ObjectRef, Place};

/// A field and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    pub object: ObjectRef,
    pub field: String,
    pub value: T,
}

pub(super) fn setting<T>(place: &Place<'_>, value: T) -> Setting<T> {
    Setting { object: place.object.clone(), field: place.field.clone(), value }
}
