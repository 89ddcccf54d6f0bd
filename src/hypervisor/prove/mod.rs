//! Proves a driver at a user's endpoint: the part of its contract that needs only [`Driver`], with VMs that are created for it
//! and always removed. Nothing without the mark of the run is touched.

mod cases;
mod ledger;
pub mod report;
mod run;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::cases::CASES;
pub use self::ledger::{Ledger, left, remove};
pub use self::run::{LENGTH, Run};
use self::trial::{Ended, Trial};
use super::machine::Machine;
use super::{Driver, DriverError, Endpoint};
use crate::bootstrap::delivery::{config_drive, guest_info};
use crate::vm::{MachineKey, Seed, SeedKind, VmSpec};

/// Opens a connection to the endpoint, as another process would.
pub type Connect<'a> = dyn Fn() -> Result<Arc<dyn Driver>, DriverError> + 'a;

/// The parameters of a run.
pub struct Bench<'a> {
    pub run: &'a Run,
    pub connect: &'a Connect<'a>,
    /// The spec of the VMs that are created.
    pub spec: VmSpec,
    /// The time limit of each case, and of the removal of its VMs.
    pub limit: Duration,
    /// The machines that must be removed.
    pub ledger: &'a Ledger,
    /// Ends the running case at its next step; its VMs are removed.
    pub stop: &'a CancellationToken,
    /// Gets progress lines for people.
    pub progress: &'a dyn Fn(&str),
    /// The endpoint's description of itself.
    pub endpoint: OnceLock<Endpoint>,
}

impl Bench<'_> {
    fn say(&self, line: &str) {
        (self.progress)(line);
    }

    fn machine(&self, key: MachineKey) -> Machine {
        Machine::of(key, self.spec.clone(), seed(SeedKind::Drive))
    }
}

/// A seed without secrets, which no program in a guest acts on.
fn seed(kind: SeedKind) -> Seed {
    const TEXT: &str = "made by capw hypervisor prove\n";
    match kind {
        SeedKind::Drive => Seed::Drive { label: config_drive::LABEL, files: BTreeMap::from([("capw-prove.txt".to_owned(), TEXT.into())]) },
        SeedKind::GuestInfo => Seed::GuestInfo(BTreeMap::from([(guest_info::META_DATA.to_owned(), "{}".to_owned())])),
    }
}

/// One behaviour of a driver.
pub struct Case {
    /// The behaviour, in plain words.
    pub name: &'static str,
    /// The case's rows in docs/hypervisors/proof.md.
    pub rows: &'static str,
    /// Whether the other cases make no sense if this one fails.
    is_first: bool,
    run: cases::Body,
}

/// The end of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    /// The driver, or this endpoint, lacks the behaviour.
    DoesNotApply,
    NotRun,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::DoesNotApply => "does not apply",
            Self::NotRun => "not run",
        }
    }
}

/// The result of one case.
pub struct Outcome {
    pub case: &'static Case,
    pub verdict: Verdict,
    pub took: Duration,
    /// The finding, or the reason of the failure.
    pub words: String,
    /// Something of the case may be left.
    pub is_left: bool,
}

impl Outcome {
    fn not_run(case: &'static Case, why: &str) -> Self {
        Self { case, verdict: Verdict::NotRun, took: Duration::ZERO, words: why.to_owned(), is_left: false }
    }

    /// The outcome of a case that has ended, after the removal of its VMs succeeded or failed.
    fn of(case: &'static Case, ended: Result<String, Ended>, took: Duration, left: Option<String>) -> Self {
        let (verdict, words) = match ended {
            Ok(words) => (Verdict::Passed, words),
            Err(Ended::Failed(words)) => (Verdict::Failed, words),
            Err(Ended::DoesNotApply(words)) => (Verdict::DoesNotApply, words),
            Err(Ended::Stopped) => (Verdict::NotRun, STOPPED.to_owned()),
        };
        match left {
            None => Self { case, verdict, took, words, is_left: false },
            Some(left) => {
                let words = if words.is_empty() { left } else { format!("{words}; {left}") };
                Self { case, verdict: Verdict::Failed, took, words, is_left: true }
            }
        }
    }

    /// The duration and the text of the outcome.
    pub fn told(&self) -> String {
        let seconds = self.took.as_secs();
        if self.words.is_empty() { format!("{seconds} s") } else { format!("{seconds} s, {}", self.words) }
    }

    pub fn is_good(&self) -> bool {
        matches!(self.verdict, Verdict::Passed | Verdict::DoesNotApply)
    }
}

const STOPPED: &str = "stopped before its end";

/// Runs all cases one after the other, and removes the VMs of each case after it.
pub async fn prove(bench: &Bench<'_>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (index, case) in CASES.iter().enumerate() {
        let number = index + 1;
        if let Some(why) = obstacle(&outcomes, bench.stop.is_cancelled()) {
            outcomes.push(Outcome::not_run(case, &why));
            continue;
        }
        bench.say(&format!("{number}/{} {}", CASES.len(), case.name));
        let begun = Instant::now();
        let ended = (case.run)(&Trial::new(bench, number, begun + bench.limit)).await;
        let took = begun.elapsed();
        let outcome = Outcome::of(case, ended, took, ledger::clean(bench).await);
        bench.say(&format!("  {}: {}", outcome.verdict.as_str(), outcome.told()));
        outcomes.push(outcome);
    }
    outcomes
}

/// Why the next case is not started.
fn obstacle(outcomes: &[Outcome], is_stopped: bool) -> Option<String> {
    if is_stopped {
        return Some("stopped".into());
    }
    if outcomes.iter().any(|outcome| outcome.is_left) {
        return Some("something is left of an earlier case".into());
    }
    let failed = outcomes.iter().find(|outcome| outcome.case.is_first && !outcome.is_good())?;
    Some(format!("it needs: {}", failed.case.name))
}
