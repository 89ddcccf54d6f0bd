//! The part of the story about `mode: Report`: `mode: Auto` then writes exactly what was reported.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{COMPONENTS, LIMIT, effects_since};
use crate::world::{AuditEvent, ControlPlane, Kind, condition, step, wait_for};

/// The kinds of components, by plural.
const KINDS: [(&str, &str); 9] = [
    ("namespaces", "Namespace"),
    ("serviceaccounts", "ServiceAccount"),
    ("clusterroles", "ClusterRole"),
    ("clusterrolebindings", "ClusterRoleBinding"),
    ("configmaps", "ConfigMap"),
    ("daemonsets", "DaemonSet"),
    ("runtimeclasses", "RuntimeClass"),
    ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
];

/// The planned writes, once a line starts with `said` and none with `unsaid`.
async fn planned(cp: &ControlPlane, name: &str, said: &str, unsaid: &str) -> Vec<String> {
    wait_for(&format!("{name} says what would be written: {said}"), LIMIT, || async {
        let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.ok_or("no WindowsCluster")?;
        let lines: Vec<String> = serde_json::from_value(object["status"]["components"]["planned"].clone()).unwrap_or_default();
        let starts = |start: &str| lines.iter().any(|line| line.starts_with(start));
        if starts(said) && !starts(unsaid) { Ok(lines) } else { Err(format!("{lines:#?}")) }
    })
    .await
}

/// Formats a write as `create KIND NAMESPACE/NAME`, or `change`.
fn written(event: &AuditEvent) -> String {
    let kind = KINDS.iter().find(|(plural, _)| *plural == event.resource).map_or(event.resource.as_str(), |(_, kind)| kind);
    let verb = match (event.verb.as_str(), event.code) {
        ("patch", 201) => "create",
        ("patch", 200) => "change",
        _ => event.verb.as_str(),
    };
    // For a Namespace, the API server reports the namespace itself as its namespace.
    let namespace = if event.namespace.is_empty() || kind == "Namespace" { String::new() } else { format!("{}/", event.namespace) };
    format!("{verb} {kind} {namespace}{}", event.name)
}

/// Switches to `Auto`, and compares the writes with the plan.
async fn it_is_written(cp: &ControlPlane, name: &str, said: &[String], is_done: impl Fn(&Value) -> bool) {
    let mark = cp.audit_mark();
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
    cp.wait_object(Kind::WINDOWS_CLUSTER, name, "what is brought is there", LIMIT, |object| is_done(object).then_some(())).await;
    // A line that starts with a reason and a colon explains why something is not written.
    let lines = said.iter().filter(|line| line.split(' ').next().is_some_and(|word| !word.ends_with(':')));
    let expected: BTreeSet<String> = lines.map(|line| line.split(" (").next().unwrap_or_default().to_owned()).collect();
    wait_for("what was said is written, and nothing else", LIMIT, || async {
        let found: BTreeSet<String> = effects_since(cp, mark).iter().map(written).collect();
        if found == expected { Ok(()) } else { Err(format!("{found:#?} instead of {expected:#?}")) }
    })
    .await;
    let object = cp.get(Kind::WINDOWS_CLUSTER, name).await.expect("the WindowsCluster");
    assert!(object["status"]["components"]["planned"].is_null(), "{:#}", object["status"]["components"]);
}

/// A foreign object stays, and is reported before and after with the same message.
pub async fn it_says_what_is_in_the_way(cp: &ControlPlane, name: &str) {
    // CAPW does not watch foreign objects.
    let trigger = json!({"metadata": {"annotations": {"example.com/look": "again"}}});
    cp.patch(Kind::WINDOWS_CLUSTER, name, &trigger).await.expect("the WindowsCluster");
    let said = planned(cp, name, "NameTaken: Namespace capw-windows is there already", "create Namespace").await;
    let classes = said.iter().filter(|line| line.starts_with("create RuntimeClass ")).count();
    let policies = said.iter().filter(|line| line.starts_with("create ValidatingAdmissionPolicy")).count();
    assert_eq!((classes, policies, said.len()), (1, 6, 8), "{said:#?}");
    let why = said.iter().find_map(|line| line.strip_prefix("NameTaken: ")).expect("why");
    it_is_written(cp, name, &said, |object| {
        condition(object, COMPONENTS).is_some_and(|found| found["reason"] == "NameTaken" && found["message"] == why)
            && object["status"]["components"]["objects"].as_array().is_some_and(|objects| objects.len() == 7)
    })
    .await;
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Report"}}})).await.expect("components can be reported");
    step("what is in the way is told before anything is asked for");
}

/// The network is installed as planned.
pub async fn it_is_as_it_was_said(cp: &ControlPlane, name: &str) {
    let said = planned(cp, name, "change Namespace capw-windows (metadata.", "NameTaken: ").await;
    for line in ["create DaemonSet capw-windows/flannel", "create ConfigMap capw-windows/kube-proxy", "create ClusterRoleBinding capw-kube-proxy"] {
        assert!(said.contains(&line.to_owned()), "{line}: {said:#?}");
    }
    assert_eq!(said.len(), 10, "{said:#?}");
    it_is_written(cp, name, &said, |object| condition(object, COMPONENTS).is_some_and(|found| found["status"] == "True")).await;
    step("what is said with mode: Report is what mode: Auto writes");
}
