//! The machines that a run has created and not yet removed.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::hypervisor::machine::Machine;
use crate::vm::MachineKey;

/// The machines that may have left something at an endpoint.
#[derive(Default)]
pub struct Ledger(Mutex<Vec<Arc<Machine>>>);

impl Ledger {
    /// Records a machine, before any part of it is created.
    pub fn note(&self, machine: &Arc<Machine>) {
        let mut all = self.0.lock();
        all.retain(|known| known.key != machine.key);
        all.push(machine.clone());
    }

    pub fn keys(&self) -> Vec<MachineKey> {
        self.0.lock().iter().map(|machine| machine.key.clone()).collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<Machine>> {
        self.0.lock().clone()
    }

    pub(super) fn is_gone(&self, key: &MachineKey) {
        self.0.lock().retain(|known| known.key != *key);
    }
}

/// The message about VMs that may be left.
pub fn left(keys: &[MachineKey]) -> String {
    if keys.is_empty() {
        return "nothing is left".into();
    }
    let names: Vec<String> = keys.iter().map(|key| format!("{} ({})", short(&key.name), key.vm)).collect();
    format!("may be left: {}", names.join(", "))
}

/// A name that is short enough for a line.
fn short(name: &str) -> String {
    match name.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", name.get(..at).unwrap_or(name)),
        None => name.to_owned(),
    }
}
