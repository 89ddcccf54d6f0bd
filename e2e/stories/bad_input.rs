//! Story *bad input*: a real API server refuses invalid manifests of every kind, with the name of the field and a valid alternative.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};

use crate::bad_manifests::{BOOTSTRAP, CLUSTER, CONTROL_PLANE, Case, HYPERVISOR, MACHINE, POOL, UPDATES, VALID};
use crate::bad_windows::WINDOWS;
use crate::world::{self, ControlPlane, Kind, Options, stretch};

/// A kind and the kind of its template, if it has one.
#[derive(Clone, Copy)]
struct Subject {
    kind: Kind,
    name: &'static str,
    template: Option<Kind>,
    /// A valid spec, which each case changes.
    spec: &'static str,
}

#[rustfmt::skip]
const SUBJECTS: [(Subject, &[Case]); 7] = [
    (Subject { kind: Kind::WINDOWS_MACHINE, name: "WindowsMachine", template: Some(Kind::WINDOWS_MACHINE_TEMPLATE), spec: r#"{"image": "windows-server-2022"}"# }, MACHINE),
    (Subject { kind: Kind::WINDOWS_BOOTSTRAP_CONFIG, name: "WindowsBootstrapConfig", template: Some(Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE), spec: "{}" }, BOOTSTRAP),
    (Subject { kind: Kind::WINDOWS_NODE_POOL, name: "WindowsNodePool", template: Some(Kind::WINDOWS_NODE_POOL_TEMPLATE), spec: r#"{"template": {"machine": {"image": "windows-server-2022"}}}"# }, POOL),
    (Subject { kind: Kind::WINDOWS_CLUSTER, name: "WindowsCluster", template: Some(Kind::WINDOWS_CLUSTER_TEMPLATE), spec: "{}" }, CLUSTER),
    (Subject { kind: Kind::EXTERNAL_CONTROL_PLANE, name: "ExternalControlPlane", template: Some(Kind::EXTERNAL_CONTROL_PLANE_TEMPLATE), spec: "{}" }, CONTROL_PLANE),
    (Subject { kind: Kind::WINDOWS_HYPERVISOR, name: "WindowsHypervisor", template: None, spec: r#"{"simulated": {}}"# }, HYPERVISOR),
    (Subject { kind: Kind::WINDOWS_BOOTSTRAP_CONFIG, name: "WindowsBootstrapConfig", template: Some(Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE), spec: include_str!("../../src/bootstrap/sample-full.yaml") }, WINDOWS),
];

impl Subject {
    /// Returns the valid object with a changed spec.
    fn object(&self, change: &Value) -> Value {
        let mut object = json!({"apiVersion": self.kind.api_version, "kind": self.name, "metadata": {"name": "bad", "namespace": "default"}});
        object["spec"] = serde_saphyr::from_str(self.spec).expect("JSON or YAML");
        json_patch::merge(&mut object, change);
        object
    }

    /// Returns the template that would create such objects.
    fn in_template(&self, change: &Value) -> Option<(Kind, Value)> {
        let mut object = self.object(change);
        let spec = object.get_mut("spec").map(Value::take);
        object["kind"] = json!(format!("{}Template", self.name));
        object["spec"] = json!({"template": {}});
        if let Some(spec) = spec {
            object["spec"]["template"]["spec"] = spec;
        }
        self.template.map(|kind| (kind, object))
    }
}

/// Returns the message of a refusal, or an error if the API server did not refuse properly.
fn refusal(answer: Result<(), kube::Error>) -> Result<String, String> {
    match answer {
        Ok(()) => Err("was accepted".to_owned()),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(status.message.clone()),
        Err(error) => Err(format!("was not refused but failed: {error}")),
    }
}

/// Checks that the refusal contains all of `wanted` and no text that only the author of a rule understands.
fn judge(what: &str, answer: Result<(), kube::Error>, wanted: &[&str]) -> Result<(), String> {
    let said = refusal(answer).map_err(|wrong| format!("{what}\n    {wrong}"))?;
    let missing: Vec<_> = wanted.iter().filter(|wanted| !said.contains(**wanted)).collect();
    let obscure = ["no such overload", "failed rule", "no such key", "rule evaluation error"].iter().find(|obscure| said.contains(**obscure));
    match (missing.as_slice(), obscure) {
        ([], None) => Ok(()),
        _ => Err(format!("{what}\n    said: {said}\n    missing: {missing:?}, obscure: {obscure:?}")),
    }
}

#[test]
fn invalid_manifests_are_refused_by_the_schema() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("bad-input")).await;
        let mut checks = Vec::new();
        for (subject, cases) in &SUBJECTS {
            // If the API server refused the unchanged object, every case would pass.
            cp.dry_run(subject.kind, &subject.object(&json!({}))).await.unwrap_or_else(|e| panic!("{}: {e}", subject.name));
            if let Some((kind, template)) = subject.in_template(&json!({})) {
                cp.dry_run(kind, &template).await.unwrap_or_else(|e| panic!("{}Template: {e}", subject.name));
            }
            for (change, wanted) in *cases {
                let change: Value = serde_json::from_str(&large(change)).unwrap_or_else(|e| panic!("{change}: {e}"));
                let shown: String = format!("{} {change}", subject.name).chars().take(300).collect();
                checks.push((shown.clone(), subject.kind, subject.object(&change), *wanted));
                // A template holds the same spec. It must not accept a value that is refused later, where fewer people notice.
                let of_spec = change.get("metadata").is_none() && change.get("spec").is_some_and(Value::is_object);
                if let Some((kind, template)) = subject.in_template(&change).filter(|_| of_spec) {
                    checks.push((format!("(template) {shown}"), kind, template, *wanted));
                }
            }
        }
        assert!(checks.len() >= 120, "{} checks", checks.len());
        let cp = &cp;
        let verdicts = futures::stream::iter(checks)
            .map(|(what, kind, object, wanted)| async move { judge(&what, cp.dry_run(kind, &object).await, wanted) })
            .buffer_unordered(8)
            .collect::<Vec<_>>();
        let verdicts = tokio::time::timeout(Duration::from_secs(90).mul_f64(stretch()), verdicts).await.expect("the API server answers");
        let mut wrong: Vec<String> = verdicts.into_iter().filter_map(Result::err).collect();
        wrong.extend(refused_though_valid(cp).await);
        wrong.extend(bad_updates(cp).await);
        assert!(wrong.is_empty(), "{} of the answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
    });
}

/// Checks that valid objects and their templates are accepted.
async fn refused_though_valid(cp: &ControlPlane) -> Vec<String> {
    let mut wrong = Vec::new();
    for (kind, change) in VALID {
        let (subject, _) = SUBJECTS.iter().find(|(subject, _)| subject.name == *kind).expect("a kind of the table");
        let parsed: Value = serde_json::from_str(change).unwrap_or_else(|e| panic!("{change}: {e}"));
        let objects = [Some((subject.kind, subject.object(&parsed))), subject.in_template(&parsed)];
        for (kind, object) in objects.into_iter().flatten() {
            let answer = cp.dry_run(kind, &object).await;
            wrong.extend(answer.err().map(|error| format!("{} {change}\n    was refused: {error}", kind.plural)));
        }
    }
    wrong
}

/// Checks that immutable fields cannot change after creation.
async fn bad_updates(cp: &ControlPlane) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, (kind, before, change, wanted)) in UPDATES.iter().enumerate() {
        let (subject, _) = SUBJECTS.iter().find(|(subject, _)| subject.name == *kind).expect("a kind of the table");
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let name = format!("update-{index}");
        let mut object = subject.object(&parse(before));
        object["metadata"]["name"] = json!(name);
        cp.apply(&object.to_string()).await;
        let name = format!("default/{name}");
        // Proves that the API server accepts other changes of the object.
        let harmless = json!({"metadata": {"labels": {"a": "b"}}});
        cp.dry_run_patch(subject.kind, &name, &harmless).await.unwrap_or_else(|e| panic!("{kind} {before}: {e}"));
        let answer = cp.dry_run_patch(subject.kind, &name, &parse(change)).await;
        wrong.extend(judge(&format!("{kind} {before} then {change}"), answer, wanted).err());
    }
    wrong
}

/// Expands `<<COUNT ITEM>>`, the innermost first.
fn large(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(start) = text.rfind("<<") {
        let end = start + text[start..].find(">>").expect("<< without >>");
        let (count, item) = text[start + 2..end].split_once(' ').expect("<<COUNT ITEM>>");
        let count: usize = count.parse().expect("a number");
        let items = (0..count).map(|index| item.replace('#', &index.to_string()));
        let items = items.collect::<Vec<_>>().join(if item.len() == 1 { "" } else { "," });
        text.replace_range(start..end + 2, &items);
    }
    text
}
