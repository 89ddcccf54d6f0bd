//! The last state of each hypervisor: one listing per endpoint and tick, shared by all machines on it, so that a steady machine
//! costs no call. A listing alone destroys nothing, and a VM that is missing in it is confirmed by a direct read.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::decide::orphans::Orphan;
use crate::api::name::{ObjectKey, VmUuid};
use crate::hypervisor::Row;
use crate::kinds::machine::decide::step::Reach;
use crate::vm::{MachineKey, Power, Present};

/// The last listings, by hypervisor.
#[derive(Default)]
pub struct Inventories {
    by_hypervisor: Mutex<HashMap<ObjectKey, Inventory>>,
}

#[derive(Default)]
struct Inventory {
    reach: Option<Reach>,
    vms: HashMap<VmUuid, Present>,
    /// VMs that no machine claims, and since when.
    orphans: HashMap<VmUuid, Timestamp>,
    /// Consecutive failed listings; they determine the back-off of the endpoint.
    failures: u32,
}

impl Inventories {
    /// The known state of the endpoint: `Unchecked` until its first listing.
    pub fn reach(&self, key: &ObjectKey) -> Reach {
        self.by_hypervisor.lock().get(key).and_then(|i| i.reach.clone()).unwrap_or(Reach::Unchecked)
    }

    /// The row of a VM that was observed running.
    pub fn running(&self, key: &ObjectKey, vm: VmUuid) -> Option<Present> {
        self.by_hypervisor.lock().get(key)?.vms.get(&vm).filter(|p| p.power == Power::On).cloned()
    }

    /// Records a direct read of one VM (`None`: the VM does not exist).
    pub fn note(&self, key: &ObjectKey, vm: VmUuid, present: Option<Present>) {
        let mut all = self.by_hypervisor.lock();
        let vms = &mut all.entry(key.clone()).or_default().vms;
        match present {
            Some(present) => vms.insert(vm, present),
            None => vms.remove(&vm),
        };
    }

    /// Records a listing. Returns the VMs whose row changed, appeared or vanished.
    pub fn listed(&self, key: &ObjectKey, rows: Vec<Row>) -> Vec<VmUuid> {
        let mut all = self.by_hypervisor.lock();
        let inventory = all.entry(key.clone()).or_default();
        let next: HashMap<VmUuid, Present> = rows
            .into_iter()
            .map(|Row { key, present, .. }| {
                // The reports of a guest that has sent its last one are not read again.
                let report = present.report.or_else(|| inventory.vms.get(&key.vm)?.report.clone());
                (key.vm, Present { report, ..present })
            })
            .collect();
        let vanished = inventory.vms.keys().filter(|vm| !next.contains_key(vm)).copied();
        let changed = next.iter().filter(|(vm, row)| inventory.vms.get(vm) != Some(row)).map(|(vm, _)| *vm);
        let touched = vanished.chain(changed).collect();
        inventory.vms = next;
        inventory.reach = Some(Reach::Reachable);
        inventory.failures = 0;
        touched
    }

    /// Records which VMs no machine claims now, and returns since when that is so.
    pub fn orphans(&self, key: &ObjectKey, now_without: Vec<MachineKey>, now: Timestamp) -> Vec<Orphan> {
        let mut all = self.by_hypervisor.lock();
        let known = &mut all.entry(key.clone()).or_default().orphans;
        known.retain(|vm, _| now_without.iter().any(|key| key.vm == *vm));
        now_without.into_iter().map(|key| Orphan { since: *known.entry(key.vm).or_insert(now), key }).collect()
    }

    /// A machine that the cache does not hold claims the VM: the VM's time as an orphan starts over.
    pub fn is_claimed(&self, key: &ObjectKey, vm: VmUuid, now: Timestamp) {
        if let Some(since) = self.by_hypervisor.lock().get_mut(key).and_then(|inventory| inventory.orphans.get_mut(&vm)) {
            *since = now;
        }
    }

    /// Records that the endpoint did not answer. Returns the number of consecutive failures.
    pub fn failed(&self, key: &ObjectKey, cause: String) -> u32 {
        let mut all = self.by_hypervisor.lock();
        let inventory = all.entry(key.clone()).or_default();
        inventory.reach = Some(Reach::Unreachable(cause));
        inventory.failures = inventory.failures.saturating_add(1);
        inventory.failures
    }

    /// Forgets an endpoint whose object was deleted.
    pub fn forget(&self, key: &ObjectKey) {
        self.by_hypervisor.lock().remove(key);
    }
}
