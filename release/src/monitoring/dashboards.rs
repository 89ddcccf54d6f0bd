//! The dashboards for Grafana, in `config/components/monitoring/dashboards`: the Makefile's target `dashboards` writes them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A graph: its title, the unit of its values, and its queries with the names of their series. `$of` is replaced by the selection of
/// namespaces.
struct Panel {
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

const fn panel(title: &'static str, unit: &'static str, queries: &'static [(&'static str, &'static str)]) -> Panel {
    Panel { title, unit, queries }
}

const FLEET: &[Panel] = &[
    panel("Machines by phase", "short", &[("{{phase}}", "max by (phase) (capw_machines{$of})")]),
    panel("Oldest machine of each phase", "s", &[("{{phase}}", "max by (phase) (capw_machine_oldest_seconds{$of,phase!=\"joined\"})")]),
    panel(
        "Time in a phase",
        "s",
        &[
            ("{{phase}}, half", "histogram_quantile(0.5, sum by (phase, le) (rate(capw_machine_phase_duration_seconds_bucket{$of}[6h])))"),
            ("{{phase}}, 95 %", "histogram_quantile(0.95, sum by (phase, le) (rate(capw_machine_phase_duration_seconds_bucket{$of}[6h])))"),
        ],
    ),
    panel(
        "New problems by reason",
        "short",
        &[("{{condition}} {{reason}}", "sum by (condition, reason) (increase(capw_machine_problems_total{$of}[1h]))")],
    ),
    panel("Machines of pools that are out of date", "short", &[("machines", "max(capw_pool_outdated_machines{$of})")]),
    panel("Hypervisors that answer", "bool", &[("{{endpoint}}", "max by (endpoint) (capw_hypervisor_up{$of})")]),
    panel(
        "Calls to hypervisors that fail",
        "ops",
        &[("{{endpoint}} {{outcome}}", "sum by (endpoint, outcome) (rate(capw_hypervisor_calls_total{$of,outcome!=\"ok\"}[$__rate_interval]))")],
    ),
    panel(
        "Calls of cluster-autoscaler",
        "ops",
        &[("{{call}} {{code}}", "sum by (call, code) (rate(capw_autoscaler_calls_total{$of}[$__rate_interval]))")],
    ),
    panel("Oldest undecided certificate request", "s", &[("{{signer}}", "max by (signer) (capw_certificate_request_oldest_seconds{$of})")]),
];

const OPERATOR: &[Panel] = &[
    panel("Who works", "bool", &[("{{pod}}", "max by (pod) (capw_leader{$of})")]),
    panel("Version", "short", &[("{{version}} {{revision}}", "count by (version, revision) (capw_build_info{$of})")]),
    panel(
        "Reconciles",
        "ops",
        &[("{{controller}} {{outcome}}", "sum by (controller, outcome) (rate(capw_reconciles_total{$of}[$__rate_interval]))")],
    ),
    panel(
        "Time of a reconcile, 99 %",
        "s",
        &[(
            "{{controller}}",
            "histogram_quantile(0.99, sum by (controller, le) (rate(capw_reconcile_duration_seconds_bucket{$of}[$__rate_interval])))",
        )],
    ),
    panel("Objects that wait", "short", &[("{{controller}}", "sum by (controller) (capw_queue_depth{$of})")]),
    panel(
        "How long they wait, 99 %",
        "s",
        &[("{{controller}}", "histogram_quantile(0.99, sum by (controller, le) (rate(capw_queue_duration_seconds_bucket{$of}[$__rate_interval])))")],
    ),
    panel(
        "Requests to API servers",
        "reqps",
        &[("{{cluster}} {{verb}} {{code}}", "sum by (cluster, verb, code) (rate(capw_api_requests_total{$of}[$__rate_interval]))")],
    ),
    panel(
        "Time of a request, 99 %",
        "s",
        &[(
            "{{cluster}} {{verb}}",
            "histogram_quantile(0.99, sum by (cluster, verb, le) (rate(capw_api_request_duration_seconds_bucket{$of}[$__rate_interval])))",
        )],
    ),
    panel(
        "Requests to hypervisors",
        "reqps",
        &[("{{endpoint}} {{request}}", "sum by (endpoint, request) (rate(capw_hypervisor_requests_total{$of}[$__rate_interval]))")],
    ),
    panel(
        "Time of a call to a hypervisor, 99 %",
        "s",
        &[(
            "{{driver}} {{call}}",
            "histogram_quantile(0.99, sum by (driver, call, le) (rate(capw_hypervisor_call_duration_seconds_bucket{$of}[$__rate_interval])))",
        )],
    ),
    panel("Memory", "bytes", &[("{{pod}}", "process_resident_memory_bytes{$of} and on (namespace, pod) capw_build_info")]),
    panel("Processor", "short", &[("{{pod}}", "rate(process_cpu_seconds_total{$of}[$__rate_interval]) and on (namespace, pod) capw_build_info")]),
    panel("Errors of watches", "ops", &[("{{kind}}", "sum by (kind) (rate(capw_watch_errors_total{$of}[$__rate_interval]))")]),
    panel("Objects that cannot be read", "short", &[("{{kind}}", "sum by (kind) (increase(capw_malformed_objects_total{$of}[1h]))")]),
    panel("Kinds with objects in an older version", "bool", &[("{{kind}}", "max by (kind) (capw_stored_versions_outdated{$of})")]),
];

/// File name, title and panels.
const DASHBOARDS: [(&str, &str, &[Panel]); 2] = [("fleet", "CAPW / Fleet", FLEET), ("operator", "CAPW / Operator", OPERATOR)];

pub fn write(folder: &Path) -> Result<()> {
    for (name, title, panels) in DASHBOARDS {
        let path = folder.join(format!("{name}.json"));
        fs::write(&path, text(name, title, panels)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn text(name: &str, title: &str, panels: &[Panel]) -> Result<String> {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels: Vec<Value> = panels.iter().enumerate().map(|(at, panel)| graph(at, panel, &source)).collect();
    let namespaces = "label_values(capw_build_info, namespace)";
    let dashboard = json!({
        "uid": format!("capw-{name}"),
        "title": title,
        "tags": ["capw"],
        "schemaVersion": 39,
        "editable": false,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
            {"name": "namespace", "label": "Namespace", "type": "query", "datasource": source, "query": namespaces, "definition": namespaces,
                "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*"},
        ]},
        "panels": panels,
    });
    Ok(serde_json::to_string_pretty(&dashboard)? + "\n")
}

/// Places two graphs in each row.
fn graph(at: usize, panel: &Panel, source: &Value) -> Value {
    let letters = 'A'..='Z';
    let targets = panel.queries.iter().zip(letters).map(|((legend, query), letter)| {
        let expr = query.replace("$of", "namespace=~\"$namespace\"");
        json!({"refId": letter.to_string(), "datasource": source, "expr": expr, "legendFormat": legend})
    });
    json!({
        "id": at + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 12, "x": at % 2 * 12, "y": at / 2 * 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout;
    use crate::monitoring::promtool::{metrics, named, promtool};

    #[test]
    fn the_files_are_current() {
        for (name, title, panels) in DASHBOARDS {
            let file = checkout().join(format!("config/components/monitoring/dashboards/{name}.json"));
            assert_eq!(fs::read_to_string(&file).unwrap_or_default(), text(name, title, panels).unwrap(), "{name}: run `make dashboards`");
        }
    }

    #[test]
    fn queries_are_read_by_prometheus_and_name_metrics_that_exist() {
        let metrics = metrics();
        let mut rules = Vec::new();
        for (_, query) in DASHBOARDS.iter().flat_map(|(_, _, panels)| *panels).flat_map(|panel| panel.queries) {
            assert!(named(query).iter().all(|name| metrics.contains(name)), "{query}");
            let expr = query.replace("$of", "namespace=~\".*\"").replace("$__rate_interval", "5m");
            rules.push(json!({"record": format!("panel:query:{}", rules.len()), "expr": expr}));
        }
        promtool(&["check", "rules"], &[("rules.yaml", &json!({"groups": [{"name": "panels", "rules": rules}]}))]);
    }

    #[test]
    fn every_metric_of_ours_is_on_a_dashboard() {
        let shown: Vec<String> =
            DASHBOARDS.iter().flat_map(|(_, _, panels)| *panels).flat_map(|panel| panel.queries).flat_map(|(_, query)| named(query)).collect();
        let hidden: Vec<String> = metrics().into_iter().filter(|name| name.starts_with("capw_") && !shown.contains(name)).collect();
        assert_eq!(hidden, ["capw_autoscaler_call_duration_seconds", "capw_events_total", "capw_reconciles_running"]);
    }
}
