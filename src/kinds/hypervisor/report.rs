//! The status of a WindowsHypervisor.

use jiff::Timestamp;

use crate::api::condition::Desired;
use crate::api::hypervisor::{HypervisorCapacity, HypervisorUse, WindowsHypervisor, WindowsHypervisorStatus};
use crate::domain::conditions::carry_over;
use crate::vm::Endpoint;

/// The next status. Values that were not read this time stay: `endpoint` and `used` are `None` when the endpoint was not queried or did not answer.
pub fn status(
    object: &WindowsHypervisor,
    said: &[Desired],
    endpoint: Option<Endpoint>,
    used: Option<HypervisorUse>,
    now: Timestamp,
) -> WindowsHypervisorStatus {
    let mut next = object.status.clone().unwrap_or_default();
    (next.conditions, next.observed_generation) = carry_over(&next.conditions, next.observed_generation, said, object.metadata.generation, now);
    next.driver = object.spec.driver().map(str::to_owned);
    next.used = used.or(next.used);
    if let Some(endpoint) = endpoint {
        next.endpoint_id.get_or_insert(endpoint.id);
        let memory = endpoint.memory_mib.map(quantity);
        next.capacity = (endpoint.cpus.is_some() || memory.is_some()).then_some(HypervisorCapacity { cpus: endpoint.cpus, memory });
        next.version = Some(endpoint.version);
    }
    next
}

/// Mebibytes as a quantity.
pub fn quantity(mib: u64) -> String {
    if mib.is_multiple_of(1024) { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") }
}
