//! The faults of one life.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The fault at one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    RequestLost,
    ReplyLost,
    InternalError,
    Unavailable,
    Throttled,
    Conflict,
    TimeoutAfterEffect,
    NoAnswer,
    /// The process crashes before the request is sent.
    CrashBefore,
    /// The process crashes after the request took effect.
    CrashAfter,
}

impl Fault {
    pub const ALL: [Self; 10] = [
        Self::RequestLost,
        Self::ReplyLost,
        Self::InternalError,
        Self::Unavailable,
        Self::Throttled,
        Self::Conflict,
        Self::TimeoutAfterEffect,
        Self::NoAnswer,
        Self::CrashBefore,
        Self::CrashAfter,
    ];
}

/// The position of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Number(usize),
    /// The request that begins with this text, after this many others that begin with it too.
    After(usize, &'static str),
}

/// Faults, and the delay of each kind's watch, which determines the order in which the controllers learn of events.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub faults: Vec<(At, Fault)>,
    /// 0: every watch is in time.
    pub order: u64,
}

impl Plan {
    pub fn numbered(faults: &[(usize, Fault)]) -> Self {
        Self { faults: faults.iter().map(|(number, fault)| (At::Number(*number), *fault)).collect(), order: 0 }
    }

    pub fn after(count: usize, begin: &'static str, fault: Fault) -> Self {
        Self { faults: vec![(At::After(count, begin), fault)], order: 0 }
    }

    pub fn in_order(self, order: u64) -> Self {
        Self { order, ..self }
    }

    /// The fault at `request`, which comes after `earlier`.
    pub fn fault(&self, request: &str, earlier: &[String]) -> Option<Fault> {
        let is_it = |at: &At| match at {
            At::Number(number) => *number == earlier.len(),
            At::After(count, begin) => request.starts_with(begin) && earlier.iter().filter(|earlier| earlier.starts_with(begin)).count() == *count,
        };
        self.faults.iter().find(|(at, _)| is_it(at)).map(|(_, fault)| *fault)
    }

    /// The requests at which something fails, provided they come in the same order as in a life without faults.
    pub fn names<'a>(&self, requests: &'a [String]) -> Vec<&'a str> {
        let numbers = self.faults.iter().filter_map(|(at, _)| if let At::Number(number) = at { Some(*number) } else { None });
        numbers.filter_map(|number| requests.get(number).map(String::as_str)).collect()
    }

    /// The percentage of driver calls that fail. Calls fail in every fourth order only.
    pub fn failing_calls(&self) -> u8 {
        if self.order % 4 == 3 { 10 } else { 0 }
    }

    /// The delay of each event of a watch.
    pub fn late(&self, resource: &str) -> Duration {
        if self.order == 0 {
            return Duration::ZERO;
        }
        let mut hasher = DefaultHasher::new();
        (self.order, resource).hash(&mut hasher);
        let all = [0, 40, 700, 4000].map(Duration::from_millis);
        usize::try_from(hasher.finish() % 4).ok().and_then(|nth| all.get(nth)).copied().unwrap_or_default()
    }
}
