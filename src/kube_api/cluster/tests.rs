use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::api::machine::{WindowsMachine, WindowsMachineStatus};
use crate::kube_api::cluster::*;
use crate::kube_api::error::Retry;
use crate::kube_api::mock::{Script, refuse, step};

const PATH: &str = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines/win-1";

fn machine(finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": { "name": "win-1", "namespace": "lab", "uid": "u-1", "resourceVersion": "7", "finalizers": finalizers },
        "spec": { "image": "windows-server-2022" },
    })
}

fn read(value: Value) -> WindowsMachine {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn what_is_not_there_is_none() {
    let (client, _script) = Script::new(vec![refuse(&format!("GET {PATH}"), 404, "NotFound")]);
    assert!(Cluster::new(client).get::<WindowsMachine>("lab", "win-1").await.unwrap().is_none());
}

#[tokio::test]
async fn a_status_is_applied_with_what_was_read_and_manager_and_without_nulls() {
    let (client, script) = Script::new(vec![step(&format!("PATCH {PATH}/status"), machine(&[]))]);
    let status = WindowsMachineStatus { host_name: Some("win-1".into()), ..Default::default() };
    let with_null = json!({ "hostName": status.host_name, "initialization": null, "list": [{ "a": null }] });
    Cluster::new(client).apply_status(&read(machine(&[])), "capw-windowsmachine", &with_null).await.unwrap();
    let seen = script.seen();
    assert_eq!(seen[0].query, "&force=true&fieldManager=capw-windowsmachine");
    assert_eq!(seen[0].body["metadata"], json!({ "name": "win-1", "namespace": "lab", "uid": "u-1", "resourceVersion": "7" }));
    assert_eq!(seen[0].body["status"], json!({ "hostName": "win-1", "list": [{}] }));
}

#[tokio::test]
async fn finalizers_of_others_stay_and_a_write_in_between_is_a_conflict() {
    let (client, script) = Script::new(vec![
        step(&format!("PATCH {PATH}"), machine(&["other", "ours"])),
        refuse(&format!("PATCH {PATH}"), 409, "Conflict"),
        refuse(&format!("PATCH {PATH}"), 404, "NotFound"),
    ]);
    let cluster = Cluster::new(client);
    let made = cluster.add_finalizer(&read(machine(&["other"])), "ours").await.unwrap().unwrap();
    assert_eq!(script.seen()[0].body, json!({ "metadata": { "finalizers": ["other", "ours"], "resourceVersion": "7", "uid": "u-1" } }));
    assert!(cluster.add_finalizer(&made, "ours").await.unwrap().is_none(), "no request when it is there");
    assert_eq!(cluster.remove_finalizer(&made, "ours").await.unwrap_err().retry(), Retry::Soon);
    assert_eq!(script.seen()[1].body["metadata"]["finalizers"], json!(["other"]));
    cluster.remove_finalizer(&made, "ours").await.unwrap();
    cluster.remove_finalizer(&made, "absent").await.unwrap();
}

#[tokio::test]
async fn a_merge_carries_the_uid_even_without_metadata() {
    let (client, script) = Script::new(vec![step(&format!("PATCH {PATH}"), machine(&[]))]);
    Cluster::new(client).merge_spec(&read(machine(&[])), json!({ "providerID": "windows://lab/x" })).await.unwrap();
    assert_eq!(script.seen()[0].body, json!({ "metadata": { "uid": "u-1" }, "spec": { "providerID": "windows://lab/x" } }));
}

#[tokio::test]
async fn creating_twice_returns_the_existing_one() {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "lab", "uid": "u" } });
    let path = "/api/v1/namespaces/lab/secrets";
    let (client, _script) = Script::new(vec![
        refuse(&format!("POST {path}"), 409, "AlreadyExists"),
        step(&format!("GET {path}/s"), secret.clone()),
        refuse(&format!("POST {path}"), 409, "AlreadyExists"),
        refuse(&format!("GET {path}/s"), 404, "NotFound"),
    ]);
    let cluster = Cluster::new(client);
    let object: Secret = serde_json::from_value(secret).unwrap();
    assert!(matches!(cluster.create_if_absent(&object).await, Ok(Creation::Existing(_))));
    assert!(matches!(cluster.create_if_absent(&object).await, Err(ApiError::Conflict(_))), "deleted between the two calls");
}

#[tokio::test]
async fn a_deletion_names_what_was_read() {
    let (client, script) = Script::new(vec![step(&format!("DELETE {PATH}"), machine(&[])), refuse(&format!("DELETE {PATH}"), 404, "NotFound")]);
    let cluster = Cluster::new(client);
    cluster.delete_exact::<WindowsMachine>("lab", "win-1", "u-1", Some("7")).await.unwrap();
    assert_eq!(script.seen()[0].body["preconditions"], json!({ "uid": "u-1", "resourceVersion": "7" }));
    cluster.delete_exact::<WindowsMachine>("lab", "win-1", "u-1", None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let error = Cluster::new(kube::Client::new(service, "x")).get::<WindowsMachine>("lab", "win-1").await.unwrap_err();
    assert_eq!(error, ApiError::Unreachable("get windowsmachines lab/win-1: no answer within 20s".into()));
}
