use crate::telemetry::fleet::{Existing, Hypervisor, InPhase, Undecided};
use crate::telemetry::metrics::*;

/// Metrics in which every family has a member.
fn full() -> Metrics {
    let metrics = Metrics::default();
    metrics.reconcile_started("windowsmachine");
    metrics.reconcile_finished("windowsmachine", "done", Duration::from_millis(3));
    metrics.queue_depth("windowsmachine", 2);
    metrics.taken_from_queue("windowsmachine", Duration::ZERO);
    metrics.hypervisor_call("simulated", "lab/a", "advance", "ok", Duration::from_millis(1));
    metrics.hypervisor_request("simulated", "lab/a", "list");
    metrics.api_request("management", "get", "secrets", Some(404), Duration::ZERO);
    metrics.api_request("workload", "list", "nodes", None, Duration::ZERO);
    metrics.watch_error("pods");
    metrics.malformed("pods");
    metrics.stored_versions_outdated("windowsmachines", true);
    metrics.event("published");
    metrics.autoscaler_call("Refresh", "ok", Duration::ZERO);
    metrics.leader(true);
    metrics.machine_phase("starting", Duration::from_secs(90));
    metrics.machine_problem("NodeJoined", "JoinFailed");
    let phases = vec![InPhase { phase: "starting", machines: 2, oldest: Duration::from_secs(60) }];
    let hypervisors = vec![Hypervisor { endpoint: "lab/a".into(), answers: true }];
    let requests = vec![Undecided { signer: "kubernetes.io/kubelet-serving", oldest: Duration::from_secs(30) }];
    let existing = Existing { phases, outdated: Some(1), hypervisors, requests };
    metrics.watch_fleet(Some(Arc::new(move || existing.clone())));
    metrics
}

/// A family as it is scraped.
#[derive(Debug, Default, PartialEq)]
pub struct Described {
    /// The name of its samples, without the suffixes of histograms.
    pub name: String,
    pub kind: String,
    pub labels: Vec<String>,
    pub help: String,
}

/// Returns every family, as a scrape shows it.
pub fn described() -> Vec<Described> {
    let text = full().text();
    let mut families: Vec<Described> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.push(Described { name: name.to_owned(), help: help.trim_end_matches('.').to_owned(), ..Described::default() });
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            families.last_mut().unwrap().kind = kind.to_owned();
        } else if !line.starts_with('#') {
            let family = families.last_mut().unwrap();
            let labels = line.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(labels, _)| labels).unwrap_or_default();
            let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            family.labels = names.filter(|name| name != "le").collect();
        }
    }
    for family in &mut families {
        match family.kind.as_str() {
            "counter" => family.name.push_str("_total"),
            "info" => family.name.push_str("_info"),
            _ => {}
        }
    }
    families.sort_by(|a, b| a.name.cmp(&b.name));
    families
}

#[test]
fn the_text_has_what_was_counted() {
    let text = full().text();
    for line in [
        "capw_reconciles_total{controller=\"windowsmachine\",outcome=\"done\"} 1",
        "capw_reconciles_running{controller=\"windowsmachine\"} 0",
        "capw_hypervisor_calls_total{driver=\"simulated\",endpoint=\"lab/a\",call=\"advance\",outcome=\"ok\"} 1",
        "capw_hypervisor_requests_total{driver=\"simulated\",endpoint=\"lab/a\",request=\"list\"} 1",
        "capw_api_requests_total{cluster=\"management\",verb=\"get\",resource=\"secrets\",code=\"404\"} 1",
        "capw_api_requests_total{cluster=\"workload\",verb=\"list\",resource=\"nodes\",code=\"none\"} 1",
        "capw_stored_versions_outdated{kind=\"windowsmachines\"} 1",
        "capw_leader 1",
        "capw_machines{phase=\"starting\"} 2.0",
        "capw_machine_oldest_seconds{phase=\"starting\"} 60.0",
        "capw_machine_phase_duration_seconds_bucket{le=\"120.0\",phase=\"starting\"} 1",
        "capw_machine_problems_total{condition=\"NodeJoined\",reason=\"JoinFailed\"} 1",
        "capw_hypervisor_up{endpoint=\"lab/a\"} 1.0",
        "capw_pool_outdated_machines 1.0",
        "capw_certificate_request_oldest_seconds{signer=\"kubernetes.io/kubelet-serving\"} 30.0",
        concat!("capw_build_info{version=\"v", env!("CARGO_PKG_VERSION"), "\",revision=\""),
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
        "process_start_time_seconds ",
        "process_open_fds ",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_scrape_of_a_full_registry_has_every_family() {
    let registered = include_str!("../metrics.rs").matches("registry.register(").count();
    let described = described();
    let from_registry = described.iter().filter(|family| family.name.starts_with("capw_")).count();
    // The existing objects provide five gauges.
    assert_eq!(from_registry, registered + 5, "full() must touch each family: {described:?}");
}

#[test]
fn names_are_as_prometheus_wants_them() {
    for Described { name, kind, help, .. } in described() {
        assert!(name.starts_with("capw_") || name.starts_with("process_"), "{name}");
        assert!(kind != "histogram" || name.ends_with("_duration_seconds"), "{name}");
        assert!(!help.is_empty(), "{name}");
    }
}

#[test]
fn series_of_an_endpoint_end_with_it() {
    let metrics = full();
    metrics.hypervisor_call("simulated", "lab/b", "list", "ok", Duration::ZERO);
    metrics.forget_endpoint("lab/a");
    let text = metrics.text();
    assert!(
        !text.contains("calls_total{driver=\"simulated\",endpoint=\"lab/a\"")
            && !text.contains("requests_total{driver=\"simulated\",endpoint=\"lab/a\"")
    );
    assert!(text.contains("endpoint=\"lab/b\""));
}

#[test]
fn nothing_is_said_about_what_nothing_looks_at() {
    let metrics = full();
    metrics.watch_fleet(None);
    assert!(!metrics.text().contains("capw_machines{"));
}
