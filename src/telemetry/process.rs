//! Memory and processor time of this process, read from `/proc` at each scrape. Absent where there is no `/proc`.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Linux on every architecture that we build for: `USER_HZ` and the page size that `/proc` counts in.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4_096;

#[derive(Debug)]
pub struct Process;

/// Resident bytes and seconds of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub resident_bytes: u64,
    pub cpu_seconds: f64,
}

impl Usage {
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// Fields 14, 15 (ticks) and 24 (pages) of `proc_pid_stat(5)`; the name in field 2 may hold spaces and parentheses.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        #[allow(clippy::cast_precision_loss)]
        let ticks = (number(11)? + number(12)?) as f64;
        Some(Self { resident_bytes: number(21)?.checked_mul(PAGE_BYTES)?, cpu_seconds: ticks / TICKS_PER_SECOND })
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(usage) = Usage::read() else { return Ok(()) };
        let memory = ConstGauge::new(i64::try_from(usage.resident_bytes).unwrap_or(i64::MAX));
        let help = "Resident memory size";
        memory.encode(encoder.encode_descriptor("process_resident_memory", help, Some(&Unit::Bytes), memory.metric_type())?)?;
        let cpu = ConstCounter::new(usage.cpu_seconds);
        let help = "Processor time spent in user and system mode";
        cpu.encode(encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), cpu.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let mut fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        fields[11] = "250".into();
        fields[12] = "50".into();
        fields[21] = "10".into();
        let usage = Usage::parse(&format!("1 (a) b) {}", fields.join(" "))).unwrap();
        assert_eq!(usage, Usage { resident_bytes: 40_960, cpu_seconds: 3.0 });
        assert_eq!(Usage::parse(""), None);
        assert_eq!(Usage::parse("1 (a) 2 3"), None);
    }
}
