//! How long objects waited to be reconciled, from the program's own histogram. It must not know the reasons.

use std::collections::BTreeMap;

const BUCKETS: &str = "capw_queue_duration_seconds_bucket{";

/// Waits of all controllers, by upper bound in seconds: how many waits were within the bound.
#[derive(Debug, Default, Clone)]
pub struct Waits(BTreeMap<u64, (String, u64)>);

impl Waits {
    /// Parses the text of the metrics.
    pub fn of(metrics: &str) -> Self {
        let mut waits = Self::default();
        for line in metrics.lines().filter_map(|line| line.strip_prefix(BUCKETS)) {
            let bound = line.split_once("le=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(bound, _)| bound);
            let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
            if let (Some(bound), Some(count)) = (bound, count) {
                // Bounds are whole milliseconds; the last is infinite.
                let order = bound.parse::<f64>().ok().filter(|bound| bound.is_finite()).map_or(u64::MAX, |bound| (bound * 1000.0) as u64);
                waits.0.entry(order).or_insert_with(|| (bound.to_owned(), 0)).1 += count;
            }
        }
        waits
    }

    /// The waits since an earlier reading.
    pub fn since(mut self, before: &Self) -> Self {
        for (order, (_, count)) in &mut self.0 {
            *count -= before.0.get(order).map_or(0, |(_, count)| *count);
        }
        self
    }

    /// The smallest bound for this percentage of waits, as a text with its unit.
    pub fn within(&self, percent: u64) -> String {
        self.bound(percent).map_or_else(|| "-".to_owned(), |(_, bound)| format!("≤ {bound}"))
    }

    /// The smallest bound for this percentage of waits, in milliseconds; `None` if nothing waited.
    fn milliseconds(&self, percent: u64) -> Option<u64> {
        self.bound(percent).map(|(order, _)| order)
    }

    /// Whether the 99th percentile is at most `times` as long as in `before`. Waits below `least` milliseconds count as `least`.
    pub fn is_at_most(&self, times: u64, before: &Self, least: u64) -> bool {
        let longest = |waits: &Self| waits.milliseconds(99).expect("objects waited").max(least);
        longest(self) <= times * longest(before)
    }

    fn bound(&self, percent: u64) -> Option<(u64, &str)> {
        let all = self.0.values().next_back().map_or(0, |(_, count)| *count);
        let found = self.0.iter().find(|(_, (_, count))| count * 100 >= all * percent);
        found.filter(|_| all > 0).map(|(order, (bound, _))| (*order, bound.as_str()))
    }
}
