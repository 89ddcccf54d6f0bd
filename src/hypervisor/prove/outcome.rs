//! The results of cases.

use std::time::Duration;

use super::cases::Case;
use super::trial::Ended;

const STOPPED: &str = "stopped before its end";

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
    pub(super) fn not_run(case: &'static Case, why: &str) -> Self {
        Self { case, verdict: Verdict::NotRun, took: Duration::ZERO, words: why.to_owned(), is_left: false }
    }

    /// The outcome of a case that has ended, after the removal of its VMs succeeded or failed.
    pub(super) fn of(case: &'static Case, ended: Result<String, Ended>, took: Duration, left: Option<String>) -> Self {
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
