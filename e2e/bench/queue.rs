//! How long objects waited for their pass, from the program's own histogram. It must not know what they waited for.

use std::collections::BTreeMap;

const BUCKETS: &str = "capw_queue_duration_seconds_bucket{";

/// Waits of all controllers, by upper bound in seconds: how many were at most as long.
#[derive(Debug, Default, Clone)]
pub struct Waits(BTreeMap<u64, (String, u64)>);

impl Waits {
    /// From the metrics' text.
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

    /// The smallest bound that so many percent kept, as a text with its unit.
    pub fn within(&self, percent: u64) -> String {
        let all = self.0.values().next_back().map_or(0, |(_, count)| *count);
        let found = self.0.values().find(|(_, count)| count * 100 >= all * percent);
        match found {
            Some((bound, _)) if all > 0 => format!("≤ {bound}"),
            _ => "-".to_owned(),
        }
    }
}
