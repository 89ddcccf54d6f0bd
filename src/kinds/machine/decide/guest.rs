//! Turns the reports of a guest into `status.bootstrap`, and into a reason with a remedy when the guest has given up.
//!
//! A guest may report anything, as often as it likes. The size of a report is bounded by [`GuestReport`], the number of writes by [`news`].

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::condition::Reason;
use crate::api::machine::{BootstrapProgress, WindowsMachineStatus};
use crate::diagnosis::{self, Finding, Symptom};
use crate::domain::age::seconds;
use crate::domain::conditions::whole_second;
use crate::domain::decision::QUIET;
use crate::vm::{FailureCode, GuestReport, state};

/// The minimum interval between two writes about the same item, however much the guest reports about it.
const SAME_ITEM: Duration = Duration::from_secs(60);

/// The next `status.bootstrap`, and how long it waits for a change of the status to be written with; `None` if the status has it.
///
/// A failure waits for nothing; a first report until [`QUIET`] after power on; another item, state or start of Windows as long after the one before;
/// another message a minute.
pub fn news(status: Option<&WindowsMachineStatus>, said: &GuestReport, now: Timestamp) -> Option<(Duration, BootstrapProgress)> {
    let known = status.and_then(|status| status.bootstrap.as_ref());
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
    if known.is_some_and(|known| BootstrapProgress { time: known.time.clone(), ..next.clone() } == *known) {
        return None;
    }
    let is_step = known.is_none_or(|known| (&known.item, &known.state, known.boot) != (&next.item, &next.state, next.boot));
    let due = match is_step {
        _ if next.state == state::FAILED && known.is_none_or(|known| known.state != state::FAILED) => Duration::ZERO,
        true => QUIET,
        false => SAME_ITEM,
    };
    let since = known.map(|known| &known.time).or_else(|| status?.powered_on_at.as_ref());
    let left = since.and_then(|since| due.checked_sub(Duration::from_secs(seconds(since.0, now).unsigned_abs())));
    Some((left.unwrap_or_default(), next))
}

/// The value of `status.bootstrap` after the guest's report was read.
pub fn told(status: Option<&WindowsMachineStatus>, said: Option<&GuestReport>, now: Timestamp) -> Option<BootstrapProgress> {
    let news = said.and_then(|said| news(status, said, now)).filter(|(left, _)| left.is_zero());
    news.map(|(_, news)| news).or_else(|| status?.bootstrap.clone())
}

/// As [`told`], for a status that is written anyway: a report that could wait costs no write of its own then.
pub fn told_along(status: &WindowsMachineStatus, said: Option<&GuestReport>, now: Timestamp) -> Option<BootstrapProgress> {
    said.and_then(|said| news(Some(status), said, now)).map(|(_, news)| news).or_else(|| status.bootstrap.clone())
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

    /// A status with this progress; the VM was powered on at second 0.
    fn status(known: Option<&BootstrapProgress>) -> WindowsMachineStatus {
        WindowsMachineStatus { bootstrap: known.cloned(), powered_on_at: Some(Time(at(0))), ..WindowsMachineStatus::default() }
    }

    fn written(known: Option<&BootstrapProgress>, said: &GuestReport, second: i64) -> BootstrapProgress {
        let (left, next) = news(Some(&status(known)), said, at(second)).unwrap();
        assert_eq!(left, Duration::ZERO);
        next
    }

    fn left(known: Option<&BootstrapProgress>, said: &GuestReport, second: i64) -> u64 {
        news(Some(&status(known)), said, at(second)).unwrap().0.as_secs()
    }

    #[test]
    fn failures_at_once_steps_soon_words_later() {
        assert_eq!(left(None, &said("join", "started", "attempt 1 of 3"), 4), 6);
        let first = written(None, &said("join", "started", "attempt 1 of 3"), 10);
        assert_eq!((first.item.as_str(), first.attempt, first.boot), ("join", Some(1), 1));
        assert_eq!(news(Some(&status(Some(&first))), &said("join", "started", "attempt 1 of 3"), at(500)), None);
        let words = said("join", "started", "attempt 2 of 3");
        assert_eq!(left(Some(&first), &words, 69), 1);
        assert_eq!(written(Some(&first), &words, 70).attempt, Some(2));
        let step = said("join", "retry", "no answer");
        assert_eq!(left(Some(&first), &step, 14), 6);
        assert_eq!(written(Some(&first), &step, 20).attempt, Some(1), "the guest said it before");
        assert_eq!(written(Some(&first), &said("join", "failed", "no answer"), 11).state, "failed");
        let plan = GuestReport { code: 71, ..said("plan", "failed", "join: no answer") };
        assert_eq!((written(None, &plan, 1).item, written(None, &plan, 1).message), ("join".to_owned(), "no answer".to_owned()));
    }

    #[test]
    fn a_report_that_could_wait_is_written_with_any_other_change() {
        let report = said("join", "started", "attempt 1 of 3");
        assert_eq!(told(Some(&status(None)), Some(&report), at(1)), None);
        let along = told_along(&status(None), Some(&report), at(1));
        assert_eq!(along.as_ref().map(|along| along.item.as_str()), Some("join"));
        assert_eq!(told_along(&status(along.as_ref()), None, at(2)), along);
    }

    proptest! {
        /// However fast a guest reports: at most one write in ten seconds, and one more for a failure.
        #[test]
        fn many_words_are_few_writes(words in prop::collection::vec(("[ab]", "started|retry|failed", "[xy]"), 1..200)) {
            let (mut known, mut writes) = (None, 0);
            for (tick, (item, state, message)) in words.iter().enumerate() {
                // Four reports a second.
                let next = told(Some(&status(known.as_ref())), Some(&said(item, state, message)), at(i64::try_from(tick / 4).unwrap()));
                writes += usize::from(next != known);
                known = next;
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
