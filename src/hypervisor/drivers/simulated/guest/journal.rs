//! The runner's memory of a machine's plan, and its reports: journal.ps1 in Rust.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::bootstrap::plan::{Item, Kind, Limits, REPORT_PLAN, state};
use crate::vm::GuestReport;

/// The journal, which survives a restart of the machine, and of the operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// How often Windows has started.
    pub boot: u32,
    /// How many restarts the plan has requested.
    pub reboots: u32,
    /// The end of the plan: a state of a report.
    pub end: Option<String>,
    /// The end was reported.
    told: bool,
    /// The number of the last report.
    sequence: u64,
    /// A runner has requested a restart at this start of Windows.
    restarting: bool,
    /// All items are done, and the secrets are being removed.
    cleaning: bool,
    /// The seconds that runners have worked on the plan. Not the time since its first start: a machine may be off for hours, and its clock may
    /// be corrected by as much.
    used: u64,
    /// The start of this runner's work, and the seconds that earlier runners have used.
    #[serde(skip)]
    working: Option<(Instant, u64)>,
    /// The markers by id of the item.
    markers: BTreeMap<String, Marker>,
    /// Counts the events on the machine, which orders them. Not the time: the clock is corrected now and then.
    moment: u64,
}

/// The known state of an item that was true once.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
struct Marker {
    /// The digest of the item's definition; empty from its begin until it is done.
    digest: String,
    /// The moment of the item's last change; 0 is never.
    acted: u64,
}

/// The end of a run of the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Finished or failed; the journal records which.
    ForGood,
    /// Windows must be restarted.
    ForRestart,
}

impl Journal {
    /// Records a start of Windows, after which a failed plan is checked again. Returns the moment.
    pub fn start(&mut self) -> u64 {
        self.boot += 1;
        self.restarting = false;
        self.end = self.end.take().filter(|end| end == state::FINISHED);
        self.next_moment()
    }

    /// Returns a moment later than all others.
    pub fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub fn finished(&self) -> bool {
        self.end.as_deref() == Some(state::FINISHED)
    }

    /// Whether the plan has ended and nothing is left to report.
    pub fn is_over(&self) -> bool {
        self.end.is_some() && (self.told || !self.finished())
    }

    /// The report of the finished plan, if a kill came before it.
    pub fn untold(&mut self) -> Option<GuestReport> {
        let missing = self.finished() && !self.told;
        missing.then(|| self.finish("all items are true"))
    }

    /// Creates the report of the finished plan.
    pub fn finish(&mut self, message: &str) -> GuestReport {
        self.told = true;
        self.report(REPORT_PLAN, state::FINISHED, 0, message)
    }

    /// The end of an earlier runner at this start of Windows: several may be started, and only the first runner counts and reports.
    pub fn outcome(&self) -> Option<Ended> {
        match (self.restarting, &self.end) {
            (true, _) => Some(Ended::ForRestart),
            (false, Some(_)) => Some(Ended::ForGood),
            (false, None) => None,
        }
    }

    /// Records the plan's request for a restart. Returns its number.
    pub fn ask_restart(&mut self) -> u32 {
        self.restarting = true;
        self.reboots += 1;
        self.reboots
    }

    /// Whether an item is left out: items before the last may need secrets that were removed.
    pub fn leaves_out(&mut self, item: &Item, last: bool) -> bool {
        self.cleaning |= last && matches!(item.kind, Kind::Absent { .. });
        self.cleaning && !last
    }

    /// The moment of the item's last change; 0 is never.
    pub fn acted(&self, id: &str) -> u64 {
        self.markers.get(id).map_or(0, |marker| marker.acted)
    }

    /// Records that the item is true without an act; returns false when that was known.
    pub fn was_true(&mut self, item: &Item) -> bool {
        // A killed runner may have applied the item: then this is a change.
        let acted = if self.is_begun(&item.id) { self.next_moment() } else { self.acted(&item.id) };
        let marker = Marker { digest: digest(item), acted };
        self.markers.insert(item.id.clone(), marker.clone()).is_none_or(|known| known != marker)
    }

    /// Records that the item was done and is true.
    pub fn became_true(&mut self, item: &Item) {
        let marker = Marker { digest: digest(item), acted: self.next_moment() };
        self.markers.insert(item.id.clone(), marker);
    }

    /// Whether the item was begun and is not done.
    pub fn is_begun(&self, id: &str) -> bool {
        self.markers.get(id).is_some_and(|marker| marker.digest.is_empty())
    }

    /// Records the begin of an attempt at the item.
    pub fn begin_item(&mut self, id: &str) {
        self.markers.entry(id.to_owned()).or_default().digest.clear();
    }

    /// Records that a runner begins to work.
    pub fn begin(&mut self) {
        self.working = Some((Instant::now(), self.used));
    }

    /// Why no more attempts are started, after the plan's time is used up.
    pub fn too_late(&mut self, limits: &Limits) -> Option<String> {
        self.count();
        let late = self.used > u64::from(limits.minutes) * 60;
        late.then(|| format!("the plan has {} minutes, {} have passed", limits.minutes, (self.used + 30) / 60))
    }

    fn count(&mut self) {
        if let Some((since, before)) = self.working {
            self.used = before + since.elapsed().as_secs();
        }
    }

    /// Creates the next report.
    pub fn report(&mut self, item: &str, state: &str, code: u32, message: &str) -> GuestReport {
        self.sequence += 1;
        self.count();
        GuestReport { sequence: self.sequence, boot: self.boot, item: item.into(), state: state.into(), code, message: message.into() }
    }
}

fn digest(item: &Item) -> String {
    // An item that cannot be serialised counts as new each time.
    serde_json::to_vec(&item).map(|bytes| HEXLOWER.encode(&Sha256::digest(bytes))).unwrap_or_default()
}

#[cfg(test)]
impl Journal {
    /// Simulates the loss of the marker files.
    pub fn lose_markers(&mut self) {
        self.markers.clear();
    }
}
