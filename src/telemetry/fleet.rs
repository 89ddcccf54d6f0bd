//! Gauges about existing objects, computed at each scrape: machines by phase, pools during a rollout, hypervisors that answer, certificate
//! requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The existing objects that the gauges describe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Existing {
    pub phases: Vec<InPhase>,
    /// The machines of pools that were not created from their pool's current template; `None`: another process reports them.
    pub outdated: Option<u32>,
    pub hypervisors: Vec<Hypervisor>,
    pub requests: Vec<Undecided>,
}

/// The machines of one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct InPhase {
    pub phase: &'static str,
    pub machines: u32,
    /// The time that the oldest machine has been in the phase.
    pub oldest: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hypervisor {
    /// The endpoint, as in the metrics about calls.
    pub endpoint: String,
    pub answers: bool,
}

/// The certificate requests that are neither approved nor denied.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecided {
    pub signer: &'static str,
    /// The age of the oldest request.
    pub oldest: Duration,
}

/// Collects the existing objects.
pub type Look = Arc<dyn Fn() -> Existing + Send + Sync>;

/// The gauges, which exist while a [`Look`] is set. Clones share it.
#[derive(Clone, Default)]
pub struct Fleet(Arc<Mutex<Option<Look>>>);

impl Fleet {
    /// Sets the function that collects the existing objects.
    pub fn watch(&self, look: Option<Look>) {
        *self.0.lock() = look;
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fleet")
    }
}

impl Collector for Fleet {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let look = self.0.lock().clone();
        let Some(Existing { phases, outdated, hypervisors, requests }) = look.map(|look| look()) else { return Ok(()) };
        let machines = phases.iter().map(|of| (of.phase, of.machines.into()));
        gauges(&mut encoder, "capw_machines", "WindowsMachines by phase", "phase", machines)?;
        let oldest = phases.iter().map(|of| (of.phase, of.oldest.as_secs_f64()));
        let help = "How long the oldest WindowsMachine of a phase has been in it";
        gauges(&mut encoder, "capw_machine_oldest_seconds", help, "phase", oldest)?;
        let up = hypervisors.iter().map(|hypervisor| (hypervisor.endpoint.as_str(), f64::from(u8::from(hypervisor.answers))));
        gauges(&mut encoder, "capw_hypervisor_up", "1 if the endpoint answers and accepts the credentials", "endpoint", up)?;
        let oldest = requests.iter().map(|of| (of.signer, of.oldest.as_secs_f64()));
        let help = "How long the oldest undecided certificate request of a machine is there; 0: there is none";
        gauges(&mut encoder, "capw_certificate_request_oldest_seconds", help, "signer", oldest)?;
        let Some(outdated) = outdated else { return Ok(()) };
        let help = "Machines of pools that were not made from their pool's current template";
        ConstGauge::new(f64::from(outdated)).encode(encoder.encode_descriptor("capw_pool_outdated_machines", help, None, MetricType::Gauge)?)
    }
}

/// Encodes a family whose members differ in one label.
fn gauges<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl ExactSizeIterator<Item = (&'a str, f64)>,
) -> fmt::Result {
    if values.len() == 0 {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (of, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&[(label, of)])?)?;
    }
    Ok(())
}
