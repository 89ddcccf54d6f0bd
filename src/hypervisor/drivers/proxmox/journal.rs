//! The entries in the journal of a machine.

use super::client::Location;
use crate::vm::Journal;

/// The keys of the journal: the id of the VM, the node that the VM is created on, and the task that creates or removes the VM.
const VMID: &str = "vmid";
const NODE: &str = "node";
pub const TASK: &str = "task";

/// Returns the location that the journal reserves for the VM.
pub fn reserved(journal: &Journal) -> Option<Location> {
    Some(Location { node: journal.get(NODE)?.clone(), vmid: journal.get(VMID)?.parse().ok()? })
}

/// Returns the journal with that location reserved for the VM.
pub fn reserve(journal: &Journal, at: &Location) -> Journal {
    let mut journal = without_task(journal);
    journal.insert(NODE.to_owned(), at.node.clone());
    journal.insert(VMID.to_owned(), at.vmid.to_string());
    journal
}

pub fn with_task(journal: &Journal, task: String) -> Journal {
    let mut journal = journal.clone();
    journal.insert(TASK.to_owned(), task);
    journal
}

pub fn without_task(journal: &Journal) -> Journal {
    let mut journal = journal.clone();
    journal.remove(TASK);
    journal
}
