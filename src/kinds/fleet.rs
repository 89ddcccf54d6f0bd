//! Metrics from the caches: the number of machines in each phase, how long phases took, new problems, and how long certificate requests have
//! been undecided. Writes nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::ResourceExt;

use super::machine::decide::phase::{Phase, phase};
use crate::api::condition::{self, ConditionType};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::api::name::ObjectKey;
use crate::engine::caches::Caches;
use crate::engine::management::Clock;
use crate::engine::roles::Roles;
use crate::engine::workload_clusters::WorkloadClusters;
use crate::telemetry::Metrics;
use crate::telemetry::fleet::{Existing, Hypervisor, InPhase, Undecided};

/// Keeps the metrics of these roles up to date until the future is dropped.
pub async fn observe(caches: Arc<Caches>, clusters: WorkloadClusters, metrics: Metrics, clock: Clock, roles: Roles) {
    let looked_at = caches.clone();
    let look = move || {
        let now = clock();
        let requests = if roles.bootstrap { undecided(&clusters, now) } else { Vec::new() };
        let existing = if roles.infrastructure { existing(&looked_at, now) } else { Existing::default() };
        Existing { requests, ..existing }
    };
    metrics.watch_fleet(Some(Arc::new(look)));
    let _end = End(metrics.clone());
    if !roles.infrastructure {
        return std::future::pending().await;
    }
    let is_there = |machine: &WindowsMachine| caches.windows_machines.get(&machine.namespace().unwrap_or_default(), &machine.name_any()).is_some();
    tokio::join!(follow(caches.windows_machines.0.subscribe(), is_there, &metrics), forget(caches.hypervisors.0.subscribe(), &caches, &metrics),);
}

/// Ends the metrics' use of the caches when it is dropped: the metrics outlive the caches.
struct End(Metrics);

impl Drop for End {
    fn drop(&mut self) {
        self.0.watch_fleet(None);
    }
}

/// The last observed state of a machine.
struct Seen {
    phase: Phase,
    since: Timestamp,
    problems: HashSet<(String, String)>,
}

/// Counts changes. Whatever was so before this process started is not counted: an earlier process counted it.
async fn follow(changes: impl Stream<Item = Arc<WindowsMachine>>, is_there: impl Fn(&WindowsMachine) -> bool, metrics: &Metrics) {
    let mut seen: HashMap<String, Seen> = HashMap::new();
    let mut changes = std::pin::pin!(changes);
    while let Some(machine) = changes.next().await {
        let Some((uid, (phase, since))) = machine.uid().zip(phase(&machine)) else { continue };
        let problems = problems(&machine);
        if let Some(before) = seen.get(&uid) {
            if before.phase < phase {
                metrics.machine_phase(before.phase.label(), elapsed(before.since, since));
            }
            for (condition, reason) in problems.difference(&before.problems) {
                metrics.machine_problem(condition, reason);
            }
        }
        if is_there(&machine) {
            seen.insert(uid, Seen { phase, since, problems });
        } else {
            seen.remove(&uid);
        }
    }
}

/// Condition and reason of each problem, without `Ready`, which repeats another condition.
fn problems(machine: &WindowsMachine) -> HashSet<(String, String)> {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions).filter(|c| c.type_ != ConditionType::Ready.as_ref());
    conditions.filter(|c| condition::problem(c).is_some()).map(|c| (c.type_.clone(), c.reason.clone())).collect()
}

async fn forget(changes: impl Stream<Item = Arc<WindowsHypervisor>>, caches: &Caches, metrics: &Metrics) {
    let mut changes = std::pin::pin!(changes);
    while let Some(hypervisor) = changes.next().await {
        let key = ObjectKey::of(&hypervisor.metadata);
        if caches.hypervisors.get(&key.namespace, &key.name).is_none() {
            metrics.forget_endpoint(&key.to_string());
        }
    }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn existing(caches: &Caches, now: Timestamp) -> Existing {
    let machines = caches.windows_machines.0.store().state();
    let pools = caches.pools.0.store().state();
    let outdated = pools.iter().filter_map(|pool| pool.status.as_ref()).map(|status| {
        let count = status.replicas.unwrap_or_default() - status.up_to_date_replicas.unwrap_or_default();
        u32::try_from(count).unwrap_or_default()
    });
    let hypervisors = caches.hypervisors.0.store().state().into_iter().map(|hypervisor| Hypervisor {
        endpoint: ObjectKey::of(&hypervisor.metadata).to_string(),
        answers: hypervisor.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, ConditionType::Reachable)),
    });
    Existing {
        phases: phases(machines.iter().filter_map(|machine| phase(machine)), now),
        outdated: Some(outdated.sum()),
        hypervisors: hypervisors.collect(),
        requests: Vec::new(),
    }
}

/// Every signer, including those without an undecided request: an alert must see a 0.
fn undecided(clusters: &WorkloadClusters, now: Timestamp) -> Vec<Undecided> {
    let oldest = |since: Option<Timestamp>| since.map(|since| elapsed(since, now)).unwrap_or_default();
    clusters.oldest_requests().map(|(signer, since)| Undecided { signer, oldest: oldest(since) }).to_vec()
}

/// Every phase, including those without machines: an alert must see a 0.
fn phases(machines: impl Iterator<Item = (Phase, Timestamp)>, now: Timestamp) -> Vec<InPhase> {
    let mut phases: BTreeMap<Phase, (u32, Duration)> = Phase::ALL.map(|phase| (phase, (0, Duration::ZERO))).into();
    for (phase, since) in machines {
        let (count, oldest) = phases.entry(phase).or_default();
        *count += 1;
        *oldest = (*oldest).max(elapsed(since, now));
    }
    phases.into_iter().map(|(phase, (machines, oldest))| InPhase { phase: phase.label(), machines, oldest }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shared;
    use serde_json::json;

    fn machine(status: serde_json::Value) -> Arc<WindowsMachine> {
        let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "a", "namespace": "lab", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"image": "windows-server-2022", "cpus": 4, "memory": "8Gi"}, "status": status});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn node_joined(status: &str, reason: &str) -> serde_json::Value {
        json!({"type": "NodeJoined", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:06:00Z"})
    }

    #[tokio::test]
    async fn a_life_is_timed_and_a_problem_is_counted_once() {
        let metrics = Metrics::default();
        let life = [
            machine(json!({"conditions": []})),
            machine(json!({"poweredOnAt": "2026-01-01T00:01:00Z", "conditions": []})),
            machine(json!({"poweredOnAt": "2026-01-01T00:01:00Z", "conditions": [node_joined("False", "NodeNeverJoined")]})),
            machine(json!({"poweredOnAt": "2026-01-01T00:01:00Z", "conditions": [node_joined("False", "NodeNeverJoined")]})),
            machine(json!({"poweredOnAt": "2026-01-01T00:01:00Z", "conditions": [node_joined("True", "Joined")]})),
        ];
        follow(futures::stream::iter(life), |_| true, &metrics).await;
        let text = metrics.text();
        assert!(text.contains("capw_machine_phase_duration_seconds_sum{phase=\"provisioning\"} 60.0"), "{text}");
        assert!(text.contains("capw_machine_phase_duration_seconds_sum{phase=\"joining\"} 300.0"), "{text}");
        assert!(text.contains("capw_machine_problems_total{condition=\"NodeJoined\",reason=\"NodeNeverJoined\"} 1\n"), "{text}");
    }

    #[tokio::test]
    async fn what_was_so_before_is_not_counted() {
        let metrics = Metrics::default();
        follow(futures::stream::iter([machine(json!({"conditions": [node_joined("False", "NodeNeverJoined")]}))]), |_| true, &metrics).await;
        assert!(!metrics.text().contains("capw_machine_problems_total{"));
    }

    #[test]
    fn phases_without_machines_are_there() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let machines = [(Phase::Joining, at("2026-01-01T00:00:00Z")), (Phase::Joining, at("2026-01-01T00:01:00Z"))];
        let found = phases(machines.into_iter(), at("2026-01-01T00:02:00Z"));
        assert_eq!(found.len(), Phase::ALL.len());
        assert_eq!(found[1], InPhase { phase: "joining", machines: 2, oldest: Duration::from_secs(120) });
        assert_eq!(found[0].machines, 0);
    }

    #[tokio::test]
    async fn the_gauges_of_each_role_end_with_the_controllers() {
        let (machines, requests) = ("capw_machines{phase=\"joining\"} 0.0", "capw_certificate_request_oldest_seconds{signer=");
        for (infrastructure, bootstrap) in [(true, true), (true, false), (false, true)] {
            let (metrics, clusters) = (Metrics::default(), shared(Caches::empty(), 1, vec![]).0.clusters);
            let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
            {
                let roles = Roles { infrastructure, bootstrap, control_plane: false };
                let mut observing = std::pin::pin!(observe(Arc::new(Caches::empty()), clusters, metrics.clone(), clock, roles));
                let _ = futures::poll!(&mut observing);
                assert_eq!(metrics.text().contains(machines), infrastructure);
                assert_eq!(metrics.text().contains("capw_pool_outdated_machines"), infrastructure);
                assert_eq!(metrics.text().matches(requests).count(), if bootstrap { 2 } else { 0 });
            }
            assert!(!metrics.text().contains("capw_machines{") && !metrics.text().contains(requests));
        }
    }
}
