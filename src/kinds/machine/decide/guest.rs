//! Turns the reports of a guest into `status.bootstrap`, and into a reason with a remedy when the guest has given up.
//!
//! A guest may report anything, as often as it likes. The size of a report is bounded by [`GuestReport`], the number of writes by [`progress`].

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::condition::Reason;
use crate::api::machine::BootstrapProgress;
use crate::diagnosis::{self, Finding, Symptom};
use crate::domain::age::seconds;
use crate::domain::conditions::whole_second;
use crate::domain::decision::QUIET;
use crate::vm::{FailureCode, GuestReport, state};

/// The minimum interval between two writes about the same item, however much the guest reports about it.
const SAME_ITEM: Duration = Duration::from_secs(60);

/// The next change of `status.bootstrap`.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The stored progress is up to date.
    Known,
    /// The progress has changed, and is to be written after this time.
    Later(Duration),
    /// The progress that is to be written now.
    News(Box<BootstrapProgress>),
}

/// When to write a report: a failure at once; another item, state or start of Windows after [`QUIET`]; another message after a minute.
pub fn progress(known: Option<&BootstrapProgress>, said: &GuestReport, now: Timestamp) -> Progress {
    let (item, message) = said.subject();
    let attempt = attempt(message).or_else(|| known.filter(|k| k.item == item && k.boot == i64::from(said.boot)).and_then(|k| k.attempt));
    let next = BootstrapProgress {
        item: item.to_owned(),
        state: said.state.clone(),
        code: said.code.into(),
        message: message.to_owned(),
        attempt,
        boot: said.boot.into(),
        time: Time(whole_second(now)),
    };
    let Some(known) = known else { return Progress::News(Box::new(next)) };
    if (BootstrapProgress { time: known.time.clone(), ..next.clone() }) == *known {
        return Progress::Known;
    }
    let step = (&known.item, &known.state, known.boot) != (&next.item, &next.state, next.boot);
    let due = match step {
        _ if next.state == state::FAILED && known.state != state::FAILED => Duration::ZERO,
        true => QUIET,
        false => SAME_ITEM,
    };
    let waited = Duration::from_secs(seconds(known.time.0, now).unsigned_abs());
    match due.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => Progress::Later(left),
        None => Progress::News(Box::new(next)),
    }
}

/// The value of `status.bootstrap` after the guest's report was read.
pub fn told(known: Option<&BootstrapProgress>, said: Option<&GuestReport>, now: Timestamp) -> Option<BootstrapProgress> {
    match said.map(|said| progress(known, said, now)) {
        Some(Progress::News(news)) => Some(*news),
        Some(Progress::Known | Progress::Later(_)) | None => known.cloned(),
    }
}

/// The number in `attempt 2 of 3`.
fn attempt(message: &str) -> Option<i64> {
    let (_, rest) = message.split_once("attempt ")?;
    let digits: &str = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<u32>().ok().filter(|n| *n > 0).map(i64::from)
}

/// Reason and message for a guest that has given up: step, code, its message, then cause and remedy of the most certain finding.
pub fn failure(said: &GuestReport) -> (Reason, String) {
    let (item, words) = said.subject();
    let found = diagnosis::diagnose(&[Symptom::report(said)]);
    let remedy = found.first().map(Finding::sentence).unwrap_or_default();
    (reason(said.code), format!("the guest gave up at step {item} (code {}): {}. {remedy}", said.code, words.trim_end_matches('.')))
}

/// The reason of NodeJoined for a failure code.
fn reason(code: u32) -> Reason {
    FailureCode::from_number(code).map_or(Reason::GuestFailed, FailureCode::reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn said(item: &str, state: &str, message: &str) -> GuestReport {
        GuestReport { sequence: 1, boot: 1, item: item.into(), state: state.into(), code: 0, message: message.into() }
    }

    fn written(known: Option<&BootstrapProgress>, said: &GuestReport, second: i64) -> BootstrapProgress {
        match progress(known, said, at(second)) {
            Progress::News(next) => *next,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn failures_at_once_steps_soon_words_later() {
        let first = written(None, &said("join", "started", "attempt 1 of 3"), 0);
        assert_eq!((first.item.as_str(), first.attempt, first.boot), ("join", Some(1), 1));
        assert_eq!(progress(Some(&first), &said("join", "started", "attempt 1 of 3"), at(500)), Progress::Known);
        let words = said("join", "started", "attempt 2 of 3");
        assert_eq!(progress(Some(&first), &words, at(59)), Progress::Later(Duration::from_secs(1)));
        assert_eq!(written(Some(&first), &words, 60).attempt, Some(2));
        let step = said("join", "retry", "no answer");
        assert_eq!(progress(Some(&first), &step, at(4)), Progress::Later(Duration::from_secs(6)));
        assert_eq!(written(Some(&first), &step, 10).attempt, Some(1), "the guest said it before");
        assert_eq!(written(Some(&first), &said("join", "failed", "no answer"), 1).state, "failed");
        let plan = GuestReport { code: 71, ..said("plan", "failed", "join: no answer") };
        assert_eq!((written(None, &plan, 1).item, written(None, &plan, 1).message), ("join".to_owned(), "no answer".to_owned()));
    }

    proptest! {
        /// However fast a guest reports: at most one write in ten seconds, and one more for a failure.
        #[test]
        fn many_words_are_few_writes(words in prop::collection::vec(("[ab]", "started|retry|failed", "[xy]"), 1..200)) {
            let (mut known, mut writes) = (None, 0);
            for (tick, (item, state, message)) in words.iter().enumerate() {
                // Four reports a second.
                if let Progress::News(next) = progress(known.as_ref(), &said(item, state, message), at(i64::try_from(tick / 4).unwrap())) {
                    known = Some(*next);
                    writes += 1;
                }
            }
            prop_assert!(writes <= 2 * (words.len() / 40 + 1));
        }

        #[test]
        fn any_word_becomes_a_bounded_message(item in "[a-z]{1,64}", message in ".{0,600}", code in any::<u32>()) {
            let report = GuestReport { code, ..said(&item, "failed", &message) };
            let report = GuestReport::parse(&report.line()).unwrap();
            let (reason, message) = failure(&report);
            prop_assert!(reason.is_problem() && message.len() < 2_000 && message.contains(&code.to_string()));
        }
    }
}
