//! The status of a WindowsHypervisor.

use jiff::Timestamp;

use crate::api::condition::Desired;
use crate::api::hypervisor::{HypervisorCapacity, HypervisorUse, WindowsHypervisor, WindowsHypervisorStatus};
use crate::domain::conditions::{conditions, observed};

/// The endpoint's description of itself.
pub struct Described {
    pub id: String,
    pub version: String,
    pub cpus: Option<i64>,
    pub memory_mib: Option<u64>,
}

/// The next status. Values that were not read this time stay: `described` and `used` are `None` when the endpoint was not queried or did not answer.
pub fn status(
    object: &WindowsHypervisor,
    said: &[Desired],
    described: Option<Described>,
    used: Option<HypervisorUse>,
    now: Timestamp,
) -> WindowsHypervisorStatus {
    let mut next = object.status.clone().unwrap_or_default();
    next.conditions = conditions(&next.conditions, said, object.metadata.generation, now);
    next.observed_generation = observed(&next.conditions, object.metadata.generation, next.observed_generation);
    next.driver = object.spec.driver().map(str::to_owned);
    next.used = used.or(next.used);
    if let Some(described) = described {
        next.endpoint_id.get_or_insert(described.id);
        let memory = described.memory_mib.map(quantity);
        next.capacity = (described.cpus.is_some() || memory.is_some()).then_some(HypervisorCapacity { cpus: described.cpus, memory });
        next.version = Some(described.version);
    }
    next
}

/// Mebibytes as a quantity.
pub fn quantity(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") }
}
