//! Tests the rules with pods that break them. In the story *Windows policies*, a real API server evaluates the same pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::cluster::WindowsCluster;
use crate::api::components::ValidationMode;
use crate::components::windows_pods::policies::{Effect, POLICY, RULES, names, objects};

/// An API server truncates longer warnings if a request causes many.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/endpoints/filters/warning.go>
const LONGEST_WARNING: usize = 256;

fn expected() -> Vec<(String, BTreeSet<String>)> {
    let pods: Vec<Value> = serde_saphyr::from_multiple(include_str!("pods.yaml")).unwrap();
    let text = |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let broken = |pod: &Value| text(pod, "/metadata/annotations/expected").split_whitespace().map(str::to_owned).collect();
    pods.iter().map(|pod| (text(pod, "/metadata/name"), broken(pod))).collect()
}

/// The API server reserves most of these fields for Linux only if a pod states that it is for Windows.
#[test]
fn each_bad_pod_breaks_one_rule_and_each_rule_has_a_bad_pod() {
    let (good, bad): (Vec<_>, Vec<_>) = expected().into_iter().partition(|(_, broken)| broken.is_empty());
    assert!(good.len() >= 30 && bad.len() >= 30, "{} good, {} bad", good.len(), bad.len());
    let known: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(known.len(), RULES.len(), "each rule has a name of its own");
    let mut met = BTreeSet::new();
    for (name, mut broken) in bad {
        if broken.len() > 1 {
            assert!(broken.remove("os-name"), "{name}: {broken:?}");
        }
        assert_eq!(broken.len(), 1, "{name}: {broken:?}");
        met.extend(broken);
    }
    met.remove("api-server");
    assert_eq!(met.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
}

#[test]
fn the_policies_and_their_bindings() {
    let documents =
        objects(ValidationMode::Warn).iter().map(|object| format!("---\n{}", serde_saphyr::to_string(object).unwrap())).collect::<String>();
    insta::assert_snapshot!(documents);
}

#[test]
fn only_pods_that_cannot_work_are_refused_and_only_if_asked() {
    assert_eq!(objects(ValidationMode::Off), [Value::Null; 0]);
    let (warn, deny) = (objects(ValidationMode::Warn), objects(ValidationMode::Deny));
    let changed: Vec<&Value> = warn.iter().zip(&deny).filter(|(warn, deny)| warn != deny).map(|(_, deny)| deny).collect();
    let [binding] = changed.as_slice() else { panic!("{changed:#?}") };
    assert_eq!((&binding["metadata"]["name"], &binding["spec"]["validationActions"]), (&json!("capw-windows-pods"), &json!(["Deny"])));
    let policy = warn.iter().find(|object| object["kind"] == POLICY.kind && object["metadata"]["name"] == binding["spec"]["policyName"]).unwrap();
    let told: Vec<&Value> = policy["spec"]["validations"].as_array().unwrap().iter().map(|validation| &validation["message"]).collect();
    assert_eq!(told, RULES.iter().filter(|rule| rule.effect == Effect::Fails).map(|rule| rule.message).collect::<Vec<_>>());
}

#[test]
fn no_warning_is_cut() {
    for name in names() {
        for rule in &RULES {
            let warning = format!("Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': {}", rule.message);
            assert!(warning.len() <= LONGEST_WARNING, "{}: {}", rule.id, warning.len());
        }
    }
}

/// API servers since Kubernetes 1.30 have these functions; no expression may use newer ones.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/cel/environment/base.go>
#[test]
fn old_api_servers_know_all_functions() {
    let known = ["dyn", "exists", "hasValue", "lowerAscii", "orValue", "startsWith"];
    let written = objects(ValidationMode::Warn).iter().map(Value::to_string).collect::<String>();
    let before = written.match_indices('(').map(|(at, _)| &written[..at]);
    let called = before.filter_map(|before| before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next()).filter(|name| !name.is_empty());
    assert_eq!(called.collect::<BTreeSet<_>>(), known.into_iter().collect());
}

/// The story compares the warning on the page with the warning of a real API server.
#[test]
fn the_page_about_pods_shows_how_pods_are_refused() {
    let page = include_str!("../../../../docs/pods.md");
    let shown = page.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let cluster: WindowsCluster = serde_saphyr::from_str(shown).unwrap();
    assert_eq!(cluster.spec.components.unwrap().policies.validation, ValidationMode::Deny);
}
