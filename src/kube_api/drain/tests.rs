use serde_json::{Value, json};

use crate::kube_api::drain::*;
use crate::kube_api::mock::{Script, refuse, refuse_with, step};

const NODE: &str = "/api/v1/nodes/win-1";
const POD: &str = "/api/v1/namespaces/shop/pods/web-1";

fn workload(client: kube::Client) -> Workload {
    Workload { server: "https://10.0.0.1:6443".into(), ..Workload::of(client) }
}

fn node() -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "win-1", "uid": "n-1", "resourceVersion": "7" } })
}

#[tokio::test]
async fn exactly_the_node_that_was_read_is_cordoned() {
    let patch = format!("PATCH {NODE}");
    let (client, script) = Script::new(vec![step(&patch, node()), refuse(&patch, 404, "NotFound"), refuse(&patch, 409, "Conflict")]);
    let (workload, node) = (workload(client), serde_json::from_value(node()).unwrap());
    workload.cordon(&node).await.unwrap();
    assert_eq!(script.seen()[0].body, json!({ "metadata": { "uid": "n-1", "resourceVersion": "7" }, "spec": { "unschedulable": true } }));
    workload.cordon(&node).await.expect("it is gone");
    let changed = workload.cordon(&node).await.unwrap_err();
    assert!(matches!(changed, WorkloadError::Api(ApiError::Conflict(_))), "{changed}");
}

#[tokio::test]
async fn exactly_that_pod_is_evicted() {
    let path = format!("POST {POD}/eviction");
    let (client, script) = Script::new(vec![step(&path, json!({ "status": "Success", "code": 201 })), refuse(&path, 404, "NotFound")]);
    let workload = workload(client);
    assert_eq!(workload.evict("shop", "web-1", "p-1", None).await.unwrap(), Evicted::Told);
    let body = script.seen()[0].body.clone();
    assert_eq!((&body["metadata"]["name"], &body["deleteOptions"]), (&json!("web-1"), &json!({ "preconditions": { "uid": "p-1" } })));
    assert_eq!(workload.evict("shop", "web-1", "p-1", Some(1)).await.unwrap(), Evicted::Gone);
    assert_eq!(script.seen()[1].body["deleteOptions"]["gracePeriodSeconds"], 1);
}

#[tokio::test]
async fn a_refusal_of_the_pod_is_no_error_and_one_of_ours_is() {
    let path = format!("POST {POD}/eviction");
    let budget =
        json!({ "causes": [{ "reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently" }] });
    let ending = json!({ "causes": [{ "reason": "NamespaceTerminating", "message": "it is being terminated" }] });
    let (client, _script) = Script::new(vec![
        refuse_with(&path, 429, "Cannot evict pod as it would violate the pod's disruption budget.", budget),
        refuse_with(&path, 500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", json!({})),
        refuse_with(&path, 403, "unable to create new content", ending),
        refuse_with(&path, 400, "admission webhook \"keep.example.com\" denied the request: ask first", json!({})),
        refuse(&path, 403, "Forbidden"),
        refuse(&path, 503, "ServiceUnavailable"),
    ]);
    let workload = workload(client);
    let evict = || workload.evict("shop", "web-1", "p-1", None);
    let refused = async || match evict().await.unwrap() {
        Evicted::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused().await.ends_with("disruption budget. The disruption budget web needs 2 healthy pods and has 2 currently"));
    assert!(refused().await.contains("more than one PodDisruptionBudget"));
    assert!(refused().await.contains("namespace"));
    assert!(refused().await.contains("ask first"));
    assert!(matches!(evict().await.unwrap_err(), WorkloadError::Forbidden { .. }));
    assert!(matches!(evict().await.unwrap_err(), WorkloadError::Unreachable { .. }));
}

#[tokio::test]
async fn force_is_used_on_exactly_that_pod() {
    let path = format!("DELETE {POD}");
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-1" } });
    let (client, script) =
        Script::new(vec![step(&path, pod), refuse(&path, 404, "NotFound"), refuse(&path, 409, "Conflict"), refuse(&path, 403, "Forbidden")]);
    let workload = workload(client);
    for _ in 0..3 {
        workload.delete_pod_by_force("shop", "web-1", "p-1").await.unwrap();
    }
    assert_eq!(script.seen()[0].body, json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "p-1" } }));
    workload.delete_pod_by_force("shop", "web-1", "p-1").await.unwrap_err();
}
