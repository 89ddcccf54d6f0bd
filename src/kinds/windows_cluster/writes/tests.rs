//! Writes against a scripted API server.

use serde_json::json;

use crate::kinds::windows_cluster::writes::*;
use crate::kube_api::mock::{Script, refuse_with, step};

const PATH: &str = "PATCH /api/v1/namespaces/capw-windows/configmaps/flannel";

fn config_map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flannel", "namespace": "capw-windows"}, "data": {"a.conf": value}})
}

/// The state that another writer has left: CAPW has written 20 seconds after the full minute.
fn live(other: Option<&str>) -> Value {
    let entry = |manager: &str, second: u32| json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:00:{second:02}Z")});
    let mut live = config_map(other.unwrap_or_default());
    json_patch::merge(&mut live, &json!({"data": {"a.conf": other}}));
    live["metadata"]["managedFields"] = json!([entry(COMPONENTS_MANAGER, 20), entry("kubectl-edit", 25)]);
    live
}

fn at(second: u32) -> Timestamp {
    format!("2026-01-01T00:00:{second:02}Z").parse().unwrap()
}

/// Another writer's change is set back once in ten seconds, and the writer is named each time.
#[tokio::test]
async fn a_change_of_another_is_set_back_once_in_ten_seconds() {
    let conflict = || {
        let cause = json!({"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using v1", "field": ".data.a.conf"});
        refuse_with(PATH, 409, "Apply failed with 1 conflict", json!({"causes": [cause]}))
    };
    let done = || step(PATH, config_map("ours"));
    for (there, second, answers, forced, field) in [
        (None, 26, vec![done()], vec![false], None),
        (Some(live(Some("other"))), 30, vec![conflict(), done()], vec![false, true], Some(".data.a.conf")),
        (Some(live(Some("other"))), 29, vec![conflict()], vec![false], Some(".data.a.conf")),
        // CAPW itself has other settings now.
        (Some(live(Some("old"))), 29, vec![done()], vec![false], None),
        // A field that another writer has removed has no manager.
        (Some(live(None)), 30, vec![done()], vec![false], None),
        (Some(live(None)), 29, vec![], vec![], Some("data[a.conf]")),
    ] {
        let (client, script) = Script::new(answers);
        let live: Vec<Value> = there.into_iter().collect();
        let contested = apply(&Workload::of(client), &[&config_map("ours")], &live, at(second)).await.unwrap();
        let expected = field.map(|field| Contested {
            object: ObjectRef::new("ConfigMap", Some("capw-windows"), "flannel"),
            field: field.to_owned(),
            manager: "kubectl-edit".to_owned(),
        });
        assert_eq!(contested, expected.into_iter().collect::<Vec<_>>(), "{second}");
        let asked: Vec<bool> = script.seen().into_iter().map(|seen| seen.query.contains("force=true")).collect();
        assert_eq!(asked, forced, "{second}");
    }
}

/// A conflict without a field manager behind it is an error, as before.
#[tokio::test]
async fn another_conflict_is_an_error() {
    let (client, _script) = Script::new(vec![refuse_with(PATH, 409, "it was deleted", json!({}))]);
    assert!(apply(&Workload::of(client), &[&config_map("ours")], &[], at(0)).await.is_err());
}
