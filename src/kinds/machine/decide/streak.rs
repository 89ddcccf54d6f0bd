//! Consecutive failures that should pass automatically: when they are worth reporting, and with which message.

use std::time::Duration;

use jiff::Timestamp;

use crate::domain::conditions::is_same;

/// This many failures in a row are reported,
const FAILURES: u32 = 3;
/// or failures that last this long.
const LASTING: Duration = Duration::from_secs(30);
/// A failure that comes this long after the last one starts a new streak: tries are never that far apart.
const APART: Duration = Duration::from_secs(600);

/// Failures of one machine, without a success between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streak {
    since: Timestamp,
    last: Timestamp,
    failures: u32,
    /// The last message, and how often it came in a row.
    words: String,
    same: u32,
    told: Option<String>,
}

impl Streak {
    /// A streak that begins with the first failure.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, last: now, failures: 0, words: String::new(), same: 0, told: None }
    }

    /// Whether the last failure was too long ago for the next one to belong to the same streak.
    pub fn is_over(&self, now: Timestamp) -> bool {
        lasts(self.last, now) >= APART
    }

    /// Records a failure. Returns the message to report, if it is time. The message stays the same while the failures do, whatever numbers they
    /// contain, so that a condition does not change at each try.
    pub fn failed(&mut self, words: &str, now: Timestamp) -> Option<&str> {
        if self.is_over(now) {
            *self = Self::new(now);
        }
        self.last = now;
        self.failures = self.failures.saturating_add(1);
        self.same = if is_same(&self.words, words) { self.same.saturating_add(1) } else { 1 };
        words.clone_into(&mut self.words);
        let is_due = self.failures >= FAILURES || lasts(self.since, now) >= LASTING;
        let is_news = self.told.as_ref().is_none_or(|told| self.same >= FAILURES && !is_same(told, words));
        if is_due && is_news {
            self.told = Some(words.to_owned());
        }
        self.told()
    }

    /// The reported message.
    pub fn told(&self) -> Option<&str> {
        self.told.as_deref()
    }
}

fn lasts(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Second and message of each failure, and the message reported after it.
    type Failure = (i64, &'static str, Option<&'static str>);

    #[test]
    fn the_third_failure_or_half_a_minute_is_told_in_words_that_stay() {
        let cases: [(&str, &[Failure]); 7] = [
            ("two pass by themselves", &[(0, "a", None), (1, "a", None)]),
            ("three do not", &[(0, "a", None), (1, "a", None), (2, "a", Some("a")), (3, "a", Some("a"))]),
            ("nor do two that last", &[(0, "a", None), (29, "a", None), (30, "a", Some("a"))]),
            ("two half a minute apart", &[(0, "a", None), (30, "b", Some("b"))]),
            (
                "numbers are no news",
                &[(0, "at 1", None), (1, "at 2", None), (2, "at 3", Some("at 3")), (3, "at 41", Some("at 3")), (4, "5 at 6", Some("at 3"))],
            ),
            (
                "other words that stay are",
                &[
                    (0, "a", None),
                    (1, "a", None),
                    (2, "a", Some("a")),
                    (3, "b", Some("a")),
                    (4, "b", Some("a")),
                    (5, "b", Some("b")),
                    (6, "a", Some("b")),
                ],
            ),
            (
                "words that alternate are not, and a long time begins again",
                &[
                    (0, "a", None),
                    (1, "b", None),
                    (2, "a", Some("a")),
                    (3, "b", Some("a")),
                    (4, "a", Some("a")),
                    (5, "b", Some("a")),
                    (700, "b", None),
                ],
            ),
        ];
        for (name, failures) in cases {
            let at = |second| Timestamp::from_second(second).unwrap();
            let mut streak = Streak::new(at(0));
            for (second, words, told) in failures {
                assert_eq!(streak.failed(words, at(*second)), *told, "{name}: {second} s");
                assert_eq!(streak.told(), *told, "{name}");
            }
        }
    }
}
