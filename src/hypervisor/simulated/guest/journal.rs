//! What the runner remembers of a machine's plan, and the words of its report: journal.ps1 in Rust. Pure.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bootstrap::plan::{Item, Limits, REPORT_PLAN, state};
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
    /// When the plan was first looked at.
    begun: Option<Timestamp>,
    /// By id of the item.
    markers: BTreeMap<String, Marker>,
    /// Counts what happens on the machine, so that it is known what came first. Not the time: that is corrected now and then.
    moment: u64,
}

/// What is known of an item that was true once.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
struct Marker {
    /// Of its definition.
    digest: String,
    /// When it last changed something; 0 is never.
    acted: u64,
}

impl Journal {
    /// Windows starts, and a plan that failed is looked at again. Gives the moment.
    pub fn start(&mut self) -> u64 {
        self.boot += 1;
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

    /// When the item last changed something; 0 is never.
    pub fn acted(&self, id: &str) -> u64 {
        self.markers.get(id).map_or(0, |marker| marker.acted)
    }

    /// The item is true without being done; false when that was known.
    pub fn was_true(&mut self, item: &Item) -> bool {
        let marker = Marker { digest: digest(item), acted: self.acted(&item.id) };
        self.markers.insert(item.id.clone(), marker.clone()).is_none_or(|known| known != marker)
    }

    /// The item was done and is true.
    pub fn became_true(&mut self, item: &Item) {
        let marker = Marker { digest: digest(item), acted: self.next_moment() };
        self.markers.insert(item.id.clone(), marker);
    }

    /// The plan is looked at.
    pub fn begin(&mut self, now: Timestamp) {
        self.begun.get_or_insert(now);
    }

    /// Why nothing is started any more, after the plan's time.
    pub fn too_late(&self, limits: &Limits, now: Timestamp) -> Option<String> {
        let used = now.duration_since(self.begun.unwrap_or(now)).as_secs();
        let late = used > i64::from(limits.minutes) * 60;
        late.then(|| format!("the plan has {} minutes, {} have passed since its first start", limits.minutes, (used + 30) / 60))
    }

    /// The next report.
    pub fn report(&mut self, item: &str, state: &str, code: u32, message: &str) -> GuestReport {
        self.sequence += 1;
        GuestReport { sequence: self.sequence, boot: self.boot, item: item.into(), state: state.into(), code, message: message.into() }
    }
}

fn digest(item: &Item) -> String {
    // What cannot be written down is new each time.
    serde_json::to_vec(&item).map(|bytes| HEXLOWER.encode(&Sha256::digest(bytes))).unwrap_or_default()
}
