//! Memory and processor time of this process, read from `/proc` at each scrape. Absent where `/proc` does not exist.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// `USER_HZ`, the same on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub struct Process;

/// The usage in `/proc/self/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub resident_bytes: u64,
    pub cpu_seconds: f64,
    /// The start of the process, in seconds since the machine started.
    pub started_seconds: f64,
}

impl Usage {
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?, u64::try_from(rustix::param::page_size()).ok()?)
    }

    /// Fields 14, 15, 22 (ticks) and 24 (pages) of `proc_pid_stat(5)`; the name in field 2 may hold spaces and parentheses.
    fn parse(stat: &str, page_bytes: u64) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        #[allow(clippy::cast_precision_loss)]
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
        Some(Self {
            resident_bytes: number(21)?.checked_mul(page_bytes)?,
            cpu_seconds: seconds(number(11)? + number(12)?),
            started_seconds: seconds(number(19)?),
        })
    }
}

/// Returns when the machine started, in seconds since 1970.
fn machine_started(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(usage) = Usage::read() else { return Ok(()) };
        let memory = ConstGauge::new(i64::try_from(usage.resident_bytes).unwrap_or(i64::MAX));
        let help = "Resident memory size";
        memory.encode(encoder.encode_descriptor("process_resident_memory", help, Some(&Unit::Bytes), memory.metric_type())?)?;
        let cpu = ConstCounter::new(usage.cpu_seconds);
        let help = "Processor time spent in user and system mode";
        cpu.encode(encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), cpu.metric_type())?)?;
        if let Some(machine) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(machine_started) {
            let started = ConstGauge::new(machine + usage.started_seconds);
            let help = "Start of the process, in seconds since 1970";
            started.encode(encoder.encode_descriptor("process_start_time", help, Some(&Unit::Seconds), started.metric_type())?)?;
        }
        let Ok(files) = fs::read_dir("/proc/self/fd") else { return Ok(()) };
        let files = ConstGauge::new(i64::try_from(files.count()).unwrap_or(i64::MAX));
        files.encode(encoder.encode_descriptor("process_open_fds", "Open file descriptors", None, files.metric_type())?)
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
        fields[19] = "700".into();
        let usage = Usage::parse(&format!("1 (a) b) {}", fields.join(" ")), 65_536).unwrap();
        assert_eq!(usage, Usage { resident_bytes: 655_360, cpu_seconds: 3.0, started_seconds: 7.0 });
        assert_eq!(Usage::parse("", 1), None);
        assert_eq!(Usage::parse("1 (a) 2 3", 1), None);
        assert_eq!(machine_started("cpu 1 2\nbtime 1790000000\nprocesses 3\n"), Some(1_790_000_000.0));
    }
}
