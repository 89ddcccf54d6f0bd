//! What the runner remembers of a machine's plan, and the words of its report: journal.ps1 in Rust.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::runner::Ended;
use crate::bootstrap::plan::{Item, Kind, Limits, REPORT_PLAN, state};
use crate::vm::GuestReport;

/// Survives a restart of the machine, and of the operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// Starts of Windows.
    pub boot: u32,
    /// Restarts that the plan asked for.
    pub reboots: u32,
    /// How the plan ended: a state of a report.
    pub end: Option<String>,
    /// The end was reported.
    told: bool,
    /// Number of the last report.
    sequence: u64,
    /// A runner has asked for a restart at this start of Windows.
    restarting: bool,
    /// All is done, and what is secret is being removed.
    cleaning: bool,
    /// Seconds that runners have worked on the plan. Not the time since its first start: a machine may be off for hours, and its clock be
    /// corrected by as much.
    used: u64,
    /// Since when this runner works, and what those before it have used.
    #[serde(skip)]
    working: Option<(Instant, u64)>,
    /// By id of the item.
    markers: BTreeMap<String, Marker>,
    /// Counts what happens on the machine, so that it is known what came first. Not the time: that is corrected now and then.
    moment: u64,
}

/// What is known of an item that was true once.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
struct Marker {
    /// Of its definition; empty from the moment it is begun until it is done.
    digest: String,
    /// When it last changed something; 0 is never.
    acted: u64,
}

impl Journal {
    /// Windows starts, and a plan that failed is checked again. Gives the moment.
    pub fn start(&mut self) -> u64 {
        self.boot += 1;
        self.restarting = false;
        self.end = self.end.take().filter(|end| end == state::FINISHED);
        self.next_moment()
    }

    /// A moment after all those before.
    pub fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub fn finished(&self) -> bool {
        self.end.as_deref() == Some(state::FINISHED)
    }

    /// The plan has ended, and nothing is left to report.
    pub fn is_over(&self) -> bool {
        self.end.is_some() && (self.told || !self.finished())
    }

    /// The report that the plan is finished, if a kill came before it.
    pub fn untold(&mut self) -> Option<GuestReport> {
        let missing = self.finished() && !self.told;
        missing.then(|| self.finish("all items are true"))
    }

    /// The report that the plan is finished.
    pub fn finish(&mut self, message: &str) -> GuestReport {
        self.told = true;
        self.report(REPORT_PLAN, state::FINISHED, 0, message)
    }

    /// How an earlier runner of this start of Windows ended: several may be started, and only the first one counts and reports.
    pub fn outcome(&self) -> Option<Ended> {
        match (self.restarting, &self.end) {
            (true, _) => Some(Ended::ForRestart),
            (false, Some(_)) => Some(Ended::ForGood),
            (false, None) => None,
        }
    }

    /// The plan asks for a restart. Gives its number.
    pub fn ask_restart(&mut self) -> u32 {
        self.restarting = true;
        self.reboots += 1;
        self.reboots
    }

    /// Whether an item is left out: those before the last one may need secrets that are gone.
    pub fn leaves_out(&mut self, item: &Item, last: bool) -> bool {
        self.cleaning |= last && matches!(item.kind, Kind::Absent { .. });
        self.cleaning && !last
    }

    /// When the item last changed something; 0 is never.
    pub fn acted(&self, id: &str) -> u64 {
        self.markers.get(id).map_or(0, |marker| marker.acted)
    }

    /// The item is true without being done; false when that was known.
    pub fn was_true(&mut self, item: &Item) -> bool {
        // What a runner was doing when it was killed may be true, and is then new.
        let acted = if self.is_begun(&item.id) { self.next_moment() } else { self.acted(&item.id) };
        let marker = Marker { digest: digest(item), acted };
        self.markers.insert(item.id.clone(), marker.clone()).is_none_or(|known| known != marker)
    }

    /// The item was done and is true.
    pub fn became_true(&mut self, item: &Item) {
        let marker = Marker { digest: digest(item), acted: self.next_moment() };
        self.markers.insert(item.id.clone(), marker);
    }

    /// Whether the item was begun and is not done.
    pub fn is_begun(&self, id: &str) -> bool {
        self.markers.get(id).is_some_and(|marker| marker.digest.is_empty())
    }

    /// An attempt at the item begins.
    pub fn begin_item(&mut self, id: &str) {
        self.markers.entry(id.to_owned()).or_default().digest.clear();
    }

    /// A runner begins to work.
    pub fn begin(&mut self) {
        self.working = Some((Instant::now(), self.used));
    }

    /// Why nothing is started any more, after the plan's time.
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

    /// The next report.
    pub fn report(&mut self, item: &str, state: &str, code: u32, message: &str) -> GuestReport {
        self.sequence += 1;
        self.count();
        GuestReport { sequence: self.sequence, boot: self.boot, item: item.into(), state: state.into(), code, message: message.into() }
    }
}

fn digest(item: &Item) -> String {
    // What cannot be written down is new each time.
    serde_json::to_vec(&item).map(|bytes| HEXLOWER.encode(&Sha256::digest(bytes))).unwrap_or_default()
}

#[cfg(test)]
impl Journal {
    /// Those files cannot be read any more.
    pub fn lose_markers(&mut self) {
        self.markers.clear();
    }
}
