//! The moment when a machine loses its power.

use std::collections::BTreeSet;
use std::time::Duration;

/// A time after a number of new reports. A busy host starts PowerShell late, so the time alone means little.
#[derive(Clone, Debug)]
pub struct Limit {
    pub reports: usize,
    pub then: Duration,
    /// Items whose reports do not count.
    pub known: BTreeSet<String>,
}

impl Limit {
    /// The first report of an unknown item.
    pub fn at_another_item(known: &BTreeSet<String>) -> Self {
        Self { reports: 1, then: Duration::ZERO, known: known.clone() }
    }

    /// The number of reported lines that count.
    pub fn count(&self, lines: &[String]) -> usize {
        lines.iter().filter(|line| !self.known.contains(item(line))).count()
    }
}

/// The item of a line `capw1 SEQUENCE BOOT ITEM …`.
pub fn item(line: &str) -> &str {
    line.split(' ').nth(3).unwrap_or_default()
}
