//! The sources of facts, and sources that contradict each other.

use crate::components::cidr::Cidr;
use crate::components::place::{ObjectRef, Place};

/// The source of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub fact: &'static str,
    pub source: String,
}

/// The networks that one object contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub object: ObjectRef,
    pub field: String,
    pub networks: Vec<Cidr>,
}

impl Told {
    pub(super) fn at(place: &Place<'_>) -> Self {
        Self { object: place.object.clone(), field: place.field.clone(), networks: place.networks() }
    }
}

/// A source that contradicts the chosen value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub object: ObjectRef,
    pub field: String,
    pub message: String,
}
