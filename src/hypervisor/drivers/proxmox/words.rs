//! The reports of guests: the newest line of the report file in each guest, read by its agent.

use std::collections::HashMap;
use std::time::Duration;

use futures::future;
use futures::stream::{self, StreamExt};
use tokio::time::timeout;

use super::client::{Client, Location};
use crate::api::name::VmUuid;
use crate::vm::GuestReport;

/// The file to which a guest writes its report.
const REPORT: &str = r"C:\ProgramData\capw\report.log";
/// The most guests that are read for one listing, and at the same time: a guest without an agent costs a time limit.
const TURN: usize = 20;
const AT_ONCE: usize = 5;
const PATIENCE: Duration = Duration::from_secs(5);

/// The newest reports of guests.
#[derive(Default)]
pub struct Words {
    newest: HashMap<VmUuid, GuestReport>,
    /// The guest that was read last: the next turn begins after it.
    last: Option<VmUuid>,
}

impl Words {
    /// Returns the newest report of a guest.
    pub fn of(&self, vm: VmUuid) -> Option<GuestReport> {
        self.newest.get(&vm).cloned()
    }

    /// Returns the guests to read next.
    pub fn next(&mut self, guests: &[(VmUuid, Location)]) -> Vec<(VmUuid, Location)> {
        let turn = self.turn(guests);
        self.last = turn.last().map(|(vm, _)| *vm).or(self.last);
        turn
    }

    pub fn add(&mut self, said: impl IntoIterator<Item = (VmUuid, GuestReport)>) {
        self.newest.extend(said);
    }

    pub fn retain(&mut self, is_there: impl Fn(VmUuid) -> bool) {
        self.newest.retain(|vm, _| is_there(*vm));
    }

    fn turn(&self, guests: &[(VmUuid, Location)]) -> Vec<(VmUuid, Location)> {
        let mut sorted: Vec<_> = guests.to_vec();
        sorted.sort_by_key(|(vm, _)| *vm);
        let start = sorted.partition_point(|(vm, _)| self.last.is_some_and(|last| *vm <= last));
        sorted.rotate_left(start);
        sorted.truncate(TURN);
        sorted
    }
}

/// Reads the reports of these guests. A guest that does not answer in time has no new report.
pub async fn ask(client: &Client, guests: Vec<(VmUuid, Location)>) -> Vec<(VmUuid, GuestReport)> {
    let answers = stream::iter(guests).map(|(vm, at)| async move {
        let read = timeout(PATIENCE, client.read_file(&at, REPORT)).await.ok()?.ok()?;
        Some((vm, GuestReport::newest([read.as_bytes()])?))
    });
    answers.buffer_unordered(AT_ONCE).filter_map(future::ready).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guest_has_its_turn() {
        let at = Location { node: "pve1".into(), vmid: 1 };
        let guests: Vec<_> = (0..50).map(|n| (VmUuid::of(&n.to_string()), at.clone())).collect();
        let mut words = Words::default();
        let mut asked = std::collections::BTreeMap::new();
        for _ in 0..5 {
            let turn = words.next(&guests);
            assert_eq!(turn.len(), TURN);
            turn.into_iter().for_each(|(vm, _)| *asked.entry(vm).or_insert(0) += 1);
        }
        assert!(asked.len() == 50 && asked.values().all(|times| *times == 2), "{asked:?}");
        assert!(words.turn(&[]).is_empty());
    }
}
