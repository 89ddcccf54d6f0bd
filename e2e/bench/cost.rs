//! Counts requests by client and effect. It must not know when machines come or go.

use std::collections::BTreeMap;

use crate::workers::{asked, by_capw};
use crate::world::{AuditEvent, Capw};

/// Logs every request; for writes to our kinds also the response, which shows whether anything changed.
pub const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch]
  resources:
  - group: infrastructure.cluster.x-k8s.io
    resources: [windowsmachines, windowsmachines/status, windowsnodepools, windowsnodepools/status, windowsclusters, windowsclusters/status, windowshypervisors, windowshypervisors/status]
  - group: bootstrap.cluster.x-k8s.io
    resources: [windowsbootstrapconfigs, windowsbootstrapconfigs/status]
  - group: controlplane.cluster.x-k8s.io
    resources: [externalcontrolplanes, externalcontrolplanes/status]
- level: Metadata
";

/// The calls for a whole endpoint, whatever the number of machines.
pub const PER_ENDPOINT: [&str; 2] = ["list", "describe"];

/// API requests of CAPW, in the management and in the workload cluster.
#[derive(Debug, Default, Clone)]
pub struct Requests {
    /// By verb and resource, e.g. `patch windowsmachines/status`; requests to the workload cluster end in ` (workload)`.
    pub by_kind: BTreeMap<String, usize>,
    /// Writes.
    pub writes: usize,
    /// Requests that were answered with an error. The only ordinary one is 404 to a get.
    pub refused: usize,
    /// Writes after which the object had the same version as before, by verb and resource.
    pub idle_writes: BTreeMap<String, usize>,
}

impl Requests {
    /// All requests except watches: each kind has one watch per few minutes, whatever the number of machines.
    pub fn all(&self) -> usize {
        self.by_kind.values().sum()
    }
}

/// Verb and resource of a request; for a refused request also the code of the response.
pub fn kind(event: &AuditEvent) -> String {
    let refusal = if event.code >= 400 { format!(": {}", event.code) } else { String::new() };
    asked(event) + &refusal
}

/// Versions of objects, carried from one count to the next.
#[derive(Default)]
pub struct Versions(BTreeMap<(String, String, String), String>);

impl Versions {
    /// Whether a write left its object unchanged. Must see every write, of every client.
    fn unchanged(&mut self, event: &AuditEvent) -> bool {
        if event.resource_version.is_empty() || event.code >= 300 {
            return false;
        }
        let object = (event.resource.clone(), event.namespace.clone(), event.name.clone());
        self.0.insert(object, event.resource_version.clone()).is_some_and(|before| before == event.resource_version)
    }

    /// Counts requests.
    pub fn count(&mut self, events: &[AuditEvent]) -> Requests {
        let mut requests = Requests::default();
        for event in events {
            let unchanged = self.unchanged(event);
            if !by_capw(event) || event.verb == "watch" {
                continue;
            }
            requests.writes += usize::from(event.is_write());
            requests.refused += usize::from(event.code >= 400);
            let kind = kind(event);
            if unchanged {
                *requests.idle_writes.entry(kind.clone()).or_default() += 1;
            }
            *requests.by_kind.entry(kind).or_default() += 1;
        }
        requests
    }
}

/// Calls of the drivers so far, by name.
pub fn calls(capw: &Capw) -> BTreeMap<String, usize> {
    counts(capw, "capw_hypervisor_calls_total{", "call")
}

/// Requests of the drivers to hypervisors so far, by name; a simulated hypervisor has none.
pub fn wire_requests(capw: &Capw) -> BTreeMap<String, usize> {
    counts(capw, "capw_hypervisor_requests_total{", "request")
}

/// The counts of a metric by the values of one label.
fn counts(capw: &Capw, metric: &str, label: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let label = format!("{label}=\"");
    for line in capw.metrics().lines() {
        let Some(rest) = line.strip_prefix(metric) else { continue };
        let name = rest.split_once(&label).and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name);
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
        if let (Some(name), Some(count)) = (name, count) {
            // A count is a whole number below 2^53.
            *counts.entry(name.to_owned()).or_default() += count as usize;
        }
    }
    counts
}

/// The difference between two counts.
pub fn less(after: &BTreeMap<String, usize>, before: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    after.iter().map(|(call, count)| (call.clone(), count - before.get(call).copied().unwrap_or_default())).filter(|(_, count)| *count > 0).collect()
}
