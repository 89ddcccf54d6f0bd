//! The listing of an endpoint: the VMs with our owner mark, and the leftovers of deleted VMs.

use std::collections::BTreeSet;

use crate::api::name::VmUuid;
use crate::vm::{MachineKey, Present};

/// The VMs of which a listing must contain more than the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The VMs whose guests have not sent their final report.
    pub awaiting_reports: BTreeSet<VmUuid>,
}

/// The VMs and leftovers at an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by VM.
    pub rows: Vec<Row>,
    /// Sorted by VM and text.
    pub leftovers: Vec<Leftover>,
}

/// A VM with our owner mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: MachineKey,
    pub present: Present,
    pub cpus: u32,
    pub memory_mib: u64,
}

/// An object with our mark or name, but without its VM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// The kind and place of the leftover.
    pub what: String,
}
