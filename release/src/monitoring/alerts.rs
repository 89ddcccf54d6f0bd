//! Tests each alert with a case in which it fires and a case in which it does not.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::checkout;

use super::promtool::{metrics, named, promtool};

/// Series with their values per minute, the minute of the evaluation, and the labels of the alert that fires then.
struct Case {
    alert: &'static str,
    series: &'static [(&'static str, &'static str)],
    minute: u32,
    fires: Option<&'static [(&'static str, &'static str)]>,
}

const fn fires(
    alert: &'static str,
    minute: u32,
    labels: &'static [(&'static str, &'static str)],
    series: &'static [(&'static str, &'static str)],
) -> Case {
    Case { alert, series, minute, fires: Some(labels) }
}

const fn silent(alert: &'static str, minute: u32, series: &'static [(&'static str, &'static str)]) -> Case {
    Case { alert, series, minute, fires: None }
}

const HYPERVISOR: &[(&str, &str)] = &[("namespace", "a"), ("endpoint", "lab/one")];
const CONTROLLER: &[(&str, &str)] = &[("namespace", "a"), ("controller", "m")];

const CASES: &[Case] = &[
    fires("CapwDown", 10, &[], &[("up", "1x20")]),
    silent("CapwDown", 10, &[(r#"capw_build_info{namespace="a"}"#, "1x20")]),
    fires(
        "CapwNoLeader",
        10,
        &[("namespace", "a")],
        &[(r#"capw_leader{namespace="a",pod="1"}"#, "0x20"), (r#"capw_leader{namespace="a",pod="2"}"#, "0x20")],
    ),
    silent("CapwNoLeader", 10, &[(r#"capw_leader{namespace="a",pod="1"}"#, "0x20"), (r#"capw_leader{namespace="a",pod="2"}"#, "1x20")]),
    // A hand-over of the leader.
    silent("CapwNoLeader", 10, &[(r#"capw_leader{namespace="a"}"#, "1x7 0 0 1x20")]),
    fires(
        "CapwReconcileErrors",
        40,
        CONTROLLER,
        &[
            (r#"capw_reconciles_total{namespace="a",controller="m",outcome="transient"}"#, "0+6x60"),
            (r#"capw_reconciles_total{namespace="a",controller="m",outcome="done"}"#, "0+1x60"),
        ],
    ),
    silent(
        "CapwReconcileErrors",
        40,
        &[
            (r#"capw_reconciles_total{namespace="a",controller="m",outcome="transient"}"#, "0+1x60"),
            (r#"capw_reconciles_total{namespace="a",controller="m",outcome="requeue"}"#, "0+6x60"),
        ],
    ),
    fires("CapwDefect", 10, CONTROLLER, &[(r#"capw_reconciles_total{namespace="a",controller="m",outcome="defect"}"#, "_x5 1x30")]),
    fires("CapwDefect", 30, CONTROLLER, &[(r#"capw_reconciles_total{namespace="a",controller="m",outcome="defect"}"#, "1x25 2x30")]),
    silent("CapwDefect", 30, &[(r#"capw_reconciles_total{namespace="a",controller="m",outcome="defect"}"#, "_x5 1x30")]),
    fires(
        "CapwQueueSlow",
        40,
        CONTROLLER,
        &[
            (r#"capw_queue_duration_seconds_bucket{namespace="a",controller="m",le="10.0"}"#, "0+1x60"),
            (r#"capw_queue_duration_seconds_bucket{namespace="a",controller="m",le="60.0"}"#, "0+10x60"),
            (r#"capw_queue_duration_seconds_bucket{namespace="a",controller="m",le="+Inf"}"#, "0+10x60"),
        ],
    ),
    silent(
        "CapwQueueSlow",
        40,
        &[
            (r#"capw_queue_duration_seconds_bucket{namespace="a",controller="m",le="10.0"}"#, "0+10x60"),
            (r#"capw_queue_duration_seconds_bucket{namespace="a",controller="m",le="+Inf"}"#, "0+10x60"),
        ],
    ),
    fires("CapwWatchFailing", 40, &[("namespace", "a"), ("kind", "nodes")], &[(r#"capw_watch_errors_total{namespace="a",kind="nodes"}"#, "0+2x60")]),
    silent("CapwWatchFailing", 40, &[(r#"capw_watch_errors_total{namespace="a",kind="nodes"}"#, "0+0.2x60")]),
    fires(
        "CapwApiThrottled",
        40,
        &[("namespace", "a"), ("cluster", "management")],
        &[(r#"capw_api_requests_total{namespace="a",cluster="management",code="429"}"#, "0+20x60")],
    ),
    silent("CapwApiThrottled", 40, &[(r#"capw_api_requests_total{namespace="a",cluster="management",code="409"}"#, "0+20x60")]),
    fires("CapwHypervisorDown", 20, HYPERVISOR, &[(r#"capw_hypervisor_up{namespace="a",endpoint="lab/one"}"#, "0x30")]),
    silent("CapwHypervisorDown", 20, &[(r#"capw_hypervisor_up{namespace="a",endpoint="lab/one"}"#, "0x5 1x30")]),
    fires(
        "CapwHypervisorFailing",
        40,
        HYPERVISOR,
        &[
            (r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",call="list",outcome="unreachable"}"#, "0+6x60"),
            (r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",call="list",outcome="ok"}"#, "0+1x60"),
        ],
    ),
    silent(
        "CapwHypervisorFailing",
        40,
        &[
            (r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",call="list",outcome="busy"}"#, "0+6x60"),
            (r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",call="list",outcome="ok"}"#, "0+1x60"),
        ],
    ),
    fires("CapwHypervisorLogin", 10, HYPERVISOR, &[(r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",outcome="auth"}"#, "_x5 1x30")]),
    silent("CapwHypervisorLogin", 10, &[(r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",outcome="ok"}"#, "_x5 1x30")]),
    fires("CapwHypervisorFull", 15, HYPERVISOR, &[(r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",outcome="capacity"}"#, "0+1x30")]),
    silent("CapwHypervisorFull", 40, &[(r#"capw_hypervisor_calls_total{namespace="a",endpoint="lab/one",outcome="capacity"}"#, "5x60")]),
    fires(
        "CapwMachineStuck",
        100,
        &[("namespace", "a"), ("phase", "provisioning")],
        &[(r#"capw_machine_oldest_seconds{namespace="a",phase="provisioning"}"#, "0+60x120")],
    ),
    silent("CapwMachineStuck", 100, &[(r#"capw_machine_oldest_seconds{namespace="a",phase="joining"}"#, "0+60x120")]),
    silent("CapwMachineStuck", 100, &[(r#"capw_machine_oldest_seconds{namespace="a",phase="joined"}"#, "90000+60x120")]),
    fires(
        "CapwJoinFailing",
        30,
        &[("namespace", "a"), ("reason", "NodeNeverJoined")],
        &[(r#"capw_machine_problems_total{namespace="a",condition="NodeJoined",reason="NodeNeverJoined"}"#, "_x5 1 2 4x60")],
    ),
    silent("CapwJoinFailing", 30, &[(r#"capw_machine_problems_total{namespace="a",condition="NodeJoined",reason="NodeNeverJoined"}"#, "_x5 1x60")]),
    fires(
        "CapwCertificateRequestWaiting",
        20,
        &[("namespace", "a"), ("signer", "kubernetes.io/kubelet-serving")],
        &[(r#"capw_certificate_request_oldest_seconds{namespace="a",signer="kubernetes.io/kubelet-serving"}"#, "0+60x60")],
    ),
    silent(
        "CapwCertificateRequestWaiting",
        20,
        &[(r#"capw_certificate_request_oldest_seconds{namespace="a",signer="kubernetes.io/kubelet-serving"}"#, "0+60x9 0+60x50")],
    ),
    fires("CapwRolloutStuck", 400, &[("namespace", "a")], &[(r#"capw_pool_outdated_machines{namespace="a"}"#, "1x500")]),
    silent("CapwRolloutStuck", 400, &[(r#"capw_pool_outdated_machines{namespace="a"}"#, "1x100 0x100 1x300")]),
    fires(
        "CapwMalformedObjects",
        10,
        &[("namespace", "a"), ("kind", "windowsmachines")],
        &[(r#"capw_malformed_objects_total{namespace="a",kind="windowsmachines"}"#, "_x5 1x60")],
    ),
    silent("CapwMalformedObjects", 90, &[(r#"capw_malformed_objects_total{namespace="a",kind="windowsmachines"}"#, "1x120")]),
    fires(
        "CapwStoredVersionsOutdated",
        70,
        &[("namespace", "a"), ("kind", "windowsmachines")],
        &[(r#"capw_stored_versions_outdated{namespace="a",kind="windowsmachines"}"#, "1x80")],
    ),
    silent("CapwStoredVersionsOutdated", 70, &[(r#"capw_stored_versions_outdated{namespace="a",kind="windowsmachines"}"#, "1x50 0x40")]),
    fires(
        "CapwMemoryNearLimit",
        40,
        &[("namespace", "a"), ("pod", "capw-1")],
        &[
            (r#"process_resident_memory_bytes{namespace="a",pod="capw-1"}"#, "500000000x60"),
            (r#"capw_build_info{namespace="a",pod="capw-1"}"#, "1x60"),
        ],
    ),
    silent("CapwMemoryNearLimit", 40, &[(r#"process_resident_memory_bytes{namespace="a",pod="other"}"#, "500000000x60")]),
];

fn rules() -> Vec<Value> {
    let text = fs::read_to_string(checkout().join("config/components/monitoring/rules.yaml")).unwrap();
    let object: Value = serde_saphyr::from_str(&text).unwrap();
    object["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

fn text<'a>(rule: &'a Value, field: &str) -> &'a str {
    rule.pointer(field).and_then(Value::as_str).unwrap_or_else(|| panic!("{rule}: no {field}"))
}

/// The annotations of an alert with these labels.
fn annotations(rule: &Value, labels: &[(&str, &str)]) -> Value {
    let summary = labels
        .iter()
        .fold(text(rule, "/annotations/summary").to_owned(), |summary, (label, value)| summary.replace(&format!("{{{{ $labels.{label} }}}}"), value));
    assert!(!summary.contains("{{"), "the case must name each label of the summary: {summary}");
    json!({"summary": summary, "runbook": text(rule, "/annotations/runbook")})
}

fn test(case: &Case, rules: &[Value]) -> Value {
    let rule = rules.iter().find(|rule| text(rule, "/alert") == case.alert).unwrap_or_else(|| panic!("{}: no such alert", case.alert));
    let series: Vec<Value> = case.series.iter().map(|(series, values)| json!({"series": series, "values": values})).collect();
    let alerts: Vec<Value> = case
        .fires
        .iter()
        .map(|labels| {
            let severity = ("severity", text(rule, "/labels/severity"));
            let all: serde_json::Map<String, Value> = labels.iter().chain([&severity]).map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
            json!({"exp_labels": all, "exp_annotations": annotations(rule, labels)})
        })
        .collect();
    let looks = json!([{"eval_time": format!("{}m", case.minute), "alertname": case.alert, "exp_alerts": alerts}]);
    json!({"name": case.alert, "interval": "1m", "input_series": series, "alert_rule_test": looks})
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let rules = rules();
    let tests: Vec<Value> = CASES.iter().map(|case| test(case, &rules)).collect();
    let groups = json!({"groups": [{"name": "capw", "rules": rules}]});
    promtool(&["check", "rules"], &[("rules.yaml", &groups)]);
    promtool(
        &["test", "rules"],
        &[("rules.yaml", &groups), ("test.yaml", &json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))],
    );
}

#[test]
fn each_alert_has_cases_of_both_kinds() {
    for rule in rules() {
        let alert = text(&rule, "/alert");
        let kinds: BTreeSet<bool> = CASES.iter().filter(|case| case.alert == alert).map(|case| case.fires.is_some()).collect();
        assert_eq!(kinds.len(), 2, "{alert}: a case in which it fires, and one in which it does not");
    }
}

#[test]
fn each_alert_names_metrics_that_exist_and_has_a_page() {
    let (rules, metrics) = (rules(), metrics());
    assert!(rules.len() >= 17);
    let index = fs::read_to_string(checkout().join("docs/runbooks/index.md")).unwrap();
    for rule in &rules {
        let named = named(text(rule, "/expr"));
        assert!(!named.is_empty() && named.iter().all(|name| metrics.contains(name)), "{named:?}");
        let (alert, page) = (text(rule, "/alert"), text(rule, "/annotations/runbook"));
        let runbook = fs::read_to_string(checkout().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(runbook.starts_with(&format!("# {alert}\n")), "{page}");
        assert!(index.contains(&format!("[{alert}]({})", page.trim_start_matches("docs/runbooks/"))), "docs/runbooks/index.md: no {alert}");
    }
}

#[test]
fn the_limit_of_memory_is_that_of_the_deployment() {
    let deployment = fs::read_to_string(checkout().join("config/manager/deployment.yaml")).unwrap();
    assert!(deployment.contains("limits:\n            memory: 512Mi\n"), "change CapwMemoryNearLimit too");
}
