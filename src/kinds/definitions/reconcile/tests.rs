use serde_json::{Value, json};

use crate::api::definition::OBSERVED_GENERATION;
use crate::kinds::definitions::reconcile::*;
use crate::kube_api::mock::{Exchange, Script, refuse, step};

const NAME: &str = "windowsclusters.infrastructure.cluster.x-k8s.io";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/windowsclusters.infrastructure.cluster.x-k8s.io";
const OBJECTS: &str = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/windowsclusters";

fn of(name: &str) -> String {
    format!("PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsclusters/{name}/status")
}

fn definition(stored: &[&str], observed: Option<&str>) -> Value {
    let version = |name: &str, storage: bool| json!({"name": name, "served": storage, "storage": storage, "subresources": {"status": {}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "generation": 2, "resourceVersion": "7", "annotations": observed.map(|generation| json!({OBSERVED_GENERATION: generation}))},
        "spec": {"group": "infrastructure.cluster.x-k8s.io", "names": {"kind": "WindowsCluster", "plural": "windowsclusters"},
            "versions": [version("v1alpha0", false), version("v1alpha1", true)]},
        "status": {"storedVersions": stored}})
}

/// A page of objects. An object whose name begins with `old` has fields that are managed in the old version.
fn page(names: &[&str], next: &str) -> Exchange {
    let object = |name: &&str| {
        let version = if name.starts_with("old") { "v1alpha0" } else { "v1alpha1" };
        let managed = json!([{"manager": "m", "operation": "Apply", "apiVersion": format!("infrastructure.cluster.x-k8s.io/{version}")}]);
        json!({"metadata": {"name": name, "namespace": "lab", "resourceVersion": "1", "managedFields": managed}})
    };
    let items: Vec<Value> = names.iter().map(object).collect();
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"continue": next}, "items": items});
    step(&format!("GET {OBJECTS}"), list)
}

fn object() -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": {"name": "a"}})
}

async fn pass(steps: Vec<Exchange>) -> (Result<(), ReconcileError>, Script, Metrics) {
    let (client, script) = Script::new(steps);
    let ctx = Context { cluster: Cluster::new(client), metrics: Metrics::default() };
    (check(&ctx, NAME).await, script, ctx.metrics)
}

#[tokio::test]
async fn every_object_is_written_before_the_definition_says_so() {
    let (result, script, metrics) = pass(vec![
        step(&format!("GET {DEFINITION}"), definition(&["v1alpha0", "v1alpha1"], None)),
        page(&["a", "b"], "more"),
        page(&["gone", "old-c"], ""),
        step(&of("a"), object()),
        refuse(&of("b"), 409, "Conflict"),
        refuse(&of("gone"), 404, "NotFound"),
        step(of("old-c").trim_end_matches("/status"), object()),
        step(&format!("PATCH {DEFINITION}/status"), definition(&["v1alpha1"], None)),
        step(&format!("PATCH {DEFINITION}"), definition(&["v1alpha1"], Some("2"))),
    ])
    .await;
    result.unwrap();
    let seen = script.seen();
    assert!(seen[2].query.contains("continue=more"), "{}", seen[2].query);
    assert_eq!(seen[3].body, json!({"metadata": {"resourceVersion": "1"}}));
    assert_eq!(seen[6].body["metadata"]["managedFields"][0]["apiVersion"], "infrastructure.cluster.x-k8s.io/v1alpha1");
    assert_eq!(seen[7].body, json!({"metadata": {"resourceVersion": "7"}, "status": {"storedVersions": ["v1alpha1"]}}));
    assert_eq!(seen[8].body, json!({"metadata": {"annotations": {OBSERVED_GENERATION: "2"}}}));
    assert!(metrics.text().contains("capw_stored_versions_outdated{kind=\"windowsclusters\"} 0\n"), "{}", metrics.text());
}

#[tokio::test]
async fn after_an_error_nothing_is_said_of_the_definition() {
    for refused in [403, 500] {
        let (result, _script, metrics) = pass(vec![
            step(&format!("GET {DEFINITION}"), definition(&["v1alpha0", "v1alpha1"], Some("2"))),
            page(&["a", "b"], ""),
            refuse(&of("a"), refused, "No"),
        ])
        .await;
        assert!(result.is_err());
        assert!(metrics.text().contains("capw_stored_versions_outdated{kind=\"windowsclusters\"} 1\n"), "{}", metrics.text());
    }
}

/// Another client stored the object in the right version, but the object still has fields that break every server-side apply.
#[tokio::test]
async fn a_conflict_is_looked_at_again_if_the_object_has_more_to_lose() {
    let (result, _script, _) = pass(vec![
        step(&format!("GET {DEFINITION}"), definition(&["v1alpha0", "v1alpha1"], None)),
        page(&["old-a"], ""),
        refuse(of("old-a").trim_end_matches("/status"), 409, "Conflict"),
        step(&format!("PATCH {DEFINITION}/status"), definition(&["v1alpha1"], None)),
    ])
    .await;
    assert!(matches!(result, Err(ReconcileError::Api(ApiError::Conflict(_)))), "{result:?}");
}

#[tokio::test]
async fn what_was_worked_off_and_what_is_not_installed_costs_one_request() {
    let (result, _script, _) = pass(vec![step(&format!("GET {DEFINITION}"), definition(&["v1alpha1"], Some("2")))]).await;
    result.unwrap();
    let (result, _script, metrics) = pass(vec![refuse(&format!("GET {DEFINITION}"), 404, "NotFound")]).await;
    result.unwrap();
    assert!(!metrics.text().contains("capw_stored_versions_outdated{"));
}

#[tokio::test]
async fn a_new_definition_is_observed_without_a_write_of_its_objects() {
    let (result, _script, _) = pass(vec![
        step(&format!("GET {DEFINITION}"), definition(&["v1alpha1"], None)),
        page(&["a"], ""),
        step(&format!("PATCH {DEFINITION}"), definition(&["v1alpha1"], Some("2"))),
    ])
    .await;
    result.unwrap();
}

#[tokio::test]
async fn a_process_of_some_namespaces_asks_for_nothing() {
    let (client, _script) = Script::new(vec![]);
    let ctx = Context { cluster: Cluster::new(client), metrics: Metrics::default() };
    let roles = Roles { infrastructure: true, bootstrap: true, control_plane: true };
    run(ctx, roles, &Namespaces::one("tenant"), &CancellationToken::new()).await;
}

#[test]
fn three_processes_share_the_definitions() {
    let of = |infrastructure, bootstrap, control_plane| names(Roles { infrastructure, bootstrap, control_plane });
    let parts = [of(true, false, false), of(false, true, false), of(false, false, true)];
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [7, 2, 2]);
    let mut all = parts.concat();
    let mut whole = of(true, true, true);
    all.sort();
    whole.sort();
    assert_eq!(all, whole);
}
