//! The owners of VMs, remembered from one listing to the next.

use std::collections::HashMap;

use super::client::{Location, Resource};
use crate::vm::MachineKey;

/// The owners of VMs from earlier listings; they are trusted as long as the VM keeps its [`Looks`].
pub type Owners = HashMap<Looks, Option<MachineKey>>;

/// The properties that identify a VM: another VM differs in at least one of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Looks {
    at: Location,
    name: String,
    tags: String,
    lock: String,
}

impl Looks {
    pub fn of(guest: &Resource) -> Self {
        Self { at: guest.location(), name: guest.name.clone(), tags: guest.tags.clone(), lock: guest.lock.clone() }
    }
}
