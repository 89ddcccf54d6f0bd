//! All metrics of this program. Labels have few, fixed values: never the name of an object that users create, except endpoints.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::build::BUILD;
use super::fleet::{Fleet, Look};
use super::process::Process;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Reconciled {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HypervisorCall {
    driver: &'static str,
    endpoint: String,
    call: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HypervisorRequest {
    driver: &'static str,
    endpoint: String,
    request: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HypervisorTime {
    driver: &'static str,
    call: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Request {
    cluster: &'static str,
    verb: &'static str,
    resource: String,
    code: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestTime {
    cluster: &'static str,
    verb: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Call {
    call: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CallTime {
    call: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Kind {
    kind: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Phase {
    phase: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Problem {
    condition: String,
    reason: String,
}

/// The series of one endpoint, which are removed with it.
#[derive(Default)]
struct OfEndpoint {
    calls: HashSet<HypervisorCall>,
    requests: HashSet<HypervisorRequest>,
}

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<All>);

struct All {
    registry: Registry,
    reconciles: Family<Reconciled, Counter>,
    reconcile_times: Times<Controller>,
    running: Family<Controller, Gauge>,
    waiting: Family<Controller, Gauge>,
    queue_times: Times<Controller>,
    hypervisor_calls: Family<HypervisorCall, Counter>,
    hypervisor_times: Times<HypervisorTime>,
    hypervisor_requests: Family<HypervisorRequest, Counter>,
    requests: Family<Request, Counter>,
    request_times: Times<RequestTime>,
    watch_errors: Family<Kind, Counter>,
    malformed: Family<Kind, Counter>,
    stored_versions_outdated: Family<Kind, Gauge>,
    events: Family<Outcome, Counter>,
    autoscaler_calls: Family<Call, Counter>,
    autoscaler_times: Times<CallTime>,
    leader: Gauge,
    phase_times: Times<Phase>,
    problems: Family<Problem, Counter>,
    fleet: Fleet,
    endpoints: Mutex<HashMap<String, OfEndpoint>>,
}

/// Durations from a read of a cache to a hypervisor that copies a disk.
fn times() -> Histogram {
    Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 900.0])
}

/// Durations from a clone of a small disk to an installation that a deadline ends.
fn phase_times() -> Histogram {
    Histogram::new([5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 7200.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = All {
            registry: Registry::default(),
            reconciles: Family::default(),
            reconcile_times: Family::new_with_constructor(times),
            running: Family::default(),
            waiting: Family::default(),
            queue_times: Family::new_with_constructor(times),
            hypervisor_calls: Family::default(),
            hypervisor_times: Family::new_with_constructor(times),
            hypervisor_requests: Family::default(),
            requests: Family::default(),
            request_times: Family::new_with_constructor(times),
            watch_errors: Family::default(),
            malformed: Family::default(),
            stored_versions_outdated: Family::default(),
            events: Family::default(),
            autoscaler_calls: Family::default(),
            autoscaler_times: Family::new_with_constructor(times),
            leader: Gauge::default(),
            phase_times: Family::new_with_constructor(phase_times),
            problems: Family::default(),
            fleet: Fleet::default(),
            endpoints: Mutex::default(),
        };
        let registry = all.registry.sub_registry_with_prefix("capw");
        registry.register("reconciles", "Finished reconciles by controller and outcome", all.reconciles.clone());
        registry.register("reconcile_duration_seconds", "Time of a reconcile", all.reconcile_times.clone());
        registry.register("reconciles_running", "Reconciles under way", all.running.clone());
        registry.register("queue_depth", "Objects that wait for a reconcile", all.waiting.clone());
        registry.register("queue_duration_seconds", "Time from the first event about an object until its reconcile began", all.queue_times.clone());
        registry.register("hypervisor_calls", "Calls to hypervisors by driver, endpoint, call and outcome", all.hypervisor_calls.clone());
        registry.register("hypervisor_call_duration_seconds", "Time of a call to a hypervisor", all.hypervisor_times.clone());
        let requests = all.hypervisor_requests.clone();
        registry.register("hypervisor_requests", "Requests to hypervisors: a call makes one or several", requests);
        registry.register("api_requests", "Requests to Kubernetes API servers", all.requests.clone());
        registry.register("api_request_duration_seconds", "Time until the head of an answer came", all.request_times.clone());
        registry.register("watch_errors", "Errors of watches; each is tried again by itself", all.watch_errors.clone());
        registry.register("malformed_objects", "Objects that do not have the shape of their kind and are skipped", all.malformed.clone());
        let help = "1 while objects of a kind may be stored in another version than the one that is written today";
        registry.register("stored_versions_outdated", help, all.stored_versions_outdated.clone());
        registry.register("events", "Events by outcome", all.events.clone());
        registry.register("autoscaler_calls", "Calls of cluster-autoscaler by name and gRPC code", all.autoscaler_calls.clone());
        registry.register("autoscaler_call_duration_seconds", "Time of a call of cluster-autoscaler", all.autoscaler_times.clone());
        registry.register("leader", "1 while this process works: it holds the lease, or there is no election", all.leader.clone());
        let help = "Time that WindowsMachines spent in a phase before the next one";
        registry.register("machine_phase_duration_seconds", help, all.phase_times.clone());
        registry.register("machine_problems", "Problems of WindowsMachines that were new, by condition and reason", all.problems.clone());
        let build = [("version", BUILD.version), ("revision", BUILD.revision), ("platform", BUILD.platform)];
        registry.register("build", "What this program was built from", Info::new(build.to_vec()));
        all.registry.register_collector(Box::new(all.fleet.clone()));
        all.registry.register_collector(Box::new(Process));
        Self(Arc::new(all))
    }
}

impl Metrics {
    pub fn reconcile_started(&self, controller: &'static str) {
        self.0.running.get_or_create(&Controller { controller }).inc();
    }

    pub fn reconcile_finished(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.0.running.get_or_create(&Controller { controller }).dec();
        self.0.reconciles.get_or_create(&Reconciled { controller, outcome }).inc();
        self.0.reconcile_times.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    pub fn queue_depth(&self, controller: &'static str, waiting: usize) {
        self.0.waiting.get_or_create(&Controller { controller }).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Records how long an object waited in the queue before its pass.
    pub fn taken_from_queue(&self, controller: &'static str, waited: Duration) {
        self.0.queue_times.get_or_create(&Controller { controller }).observe(waited.as_secs_f64());
    }

    pub fn hypervisor_call(&self, driver: &'static str, endpoint: &str, call: &'static str, outcome: &'static str, took: Duration) {
        let counted = HypervisorCall { driver, endpoint: endpoint.into(), call, outcome };
        self.0.hypervisor_calls.get_or_create(&counted).inc();
        self.of_endpoint(endpoint, |series| {
            series.calls.insert(counted);
        });
        self.0.hypervisor_times.get_or_create(&HypervisorTime { driver, call }).observe(took.as_secs_f64());
    }

    pub fn hypervisor_request(&self, driver: &'static str, endpoint: &str, request: &'static str) {
        let counted = HypervisorRequest { driver, endpoint: endpoint.into(), request };
        self.0.hypervisor_requests.get_or_create(&counted).inc();
        self.of_endpoint(endpoint, |series| {
            series.requests.insert(counted);
        });
    }

    fn of_endpoint(&self, endpoint: &str, change: impl FnOnce(&mut OfEndpoint)) {
        let mut endpoints = self.0.endpoints.lock();
        match endpoints.get_mut(endpoint) {
            Some(series) => change(series),
            None => change(endpoints.entry(endpoint.to_owned()).or_default()),
        }
    }

    /// Removes the series of an endpoint that was deleted.
    pub fn forget_endpoint(&self, endpoint: &str) {
        let series = self.0.endpoints.lock().remove(endpoint).unwrap_or_default();
        for call in &series.calls {
            self.0.hypervisor_calls.remove(call);
        }
        for request in &series.requests {
            self.0.hypervisor_requests.remove(request);
        }
    }

    /// Records how long a WindowsMachine was in a phase that it left.
    pub fn machine_phase(&self, phase: &'static str, took: Duration) {
        self.0.phase_times.get_or_create(&Phase { phase }).observe(took.as_secs_f64());
    }

    /// Counts a new problem of a WindowsMachine.
    pub fn machine_problem(&self, condition: &str, reason: &str) {
        self.0.problems.get_or_create(&Problem { condition: condition.into(), reason: reason.into() }).inc();
    }

    /// Sets the function that collects the existing objects at each scrape.
    pub fn watch_fleet(&self, look: Option<Look>) {
        self.0.fleet.watch(look);
    }

    /// Counts a request. `cluster` is `management` or `workload`; `code` is the status, or `none` without an answer.
    pub fn api_request(&self, cluster: &'static str, verb: &'static str, resource: &str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "none".to_owned(), |c| c.to_string());
        self.0.requests.get_or_create(&Request { cluster, verb, resource: resource.into(), code }).inc();
        self.0.request_times.get_or_create(&RequestTime { cluster, verb }).observe(took.as_secs_f64());
    }

    pub fn watch_error(&self, kind: &str) {
        self.0.watch_errors.get_or_create(&Kind { kind: kind.into() }).inc();
    }

    pub fn malformed(&self, kind: &str) {
        self.0.malformed.get_or_create(&Kind { kind: kind.into() }).inc();
    }

    pub fn stored_versions_outdated(&self, kind: &str, outdated: bool) {
        self.0.stored_versions_outdated.get_or_create(&Kind { kind: kind.into() }).set(outdated.into());
    }

    pub fn event(&self, outcome: &'static str) {
        self.0.events.get_or_create(&Outcome { outcome }).inc();
    }

    /// Counts a call. `call` is its name in the service, `code` the gRPC code in lower case.
    pub fn autoscaler_call(&self, call: &'static str, code: &'static str, took: Duration) {
        self.0.autoscaler_calls.get_or_create(&Call { call, code }).inc();
        self.0.autoscaler_times.get_or_create(&CallTime { call }).observe(took.as_secs_f64());
    }

    pub fn leader(&self, leads: bool) {
        self.0.leader.set(leads.into());
    }

    /// Returns the OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }
}

#[cfg(test)]
pub mod tests;
