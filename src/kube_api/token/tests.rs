use kube::Client;
use serde_json::{Value, json};

use crate::kube_api::mock::{Script, refuse, step};
use crate::kube_api::token::*;

const PATH: &str = "/api/v1/namespaces/kube-system/secrets";

pub(crate) fn workload(client: Client) -> Workload {
    Workload { server: "https://10.0.0.1:6443".into(), ..Workload::of(client) }
}

fn owner() -> Owner {
    Owner { id: "lab/c1/11111111".into(), description: "WindowsMachine lab/win-1".into() }
}

fn secret(owner_id: &str) -> Value {
    let mut secret = serde_json::to_value(body("abcdef", &"0123456789abcdef".into(), &Owner { id: owner_id.into(), ..owner() }, at())).unwrap();
    secret["metadata"]["uid"] = json!("u-1");
    secret["metadata"]["resourceVersion"] = json!("5");
    secret
}

fn at() -> Timestamp {
    "2026-11-21T12:00:00.123Z".parse().unwrap()
}

#[tokio::test]
async fn a_token_is_made_as_kubernetes_reads_it() {
    let (client, script) = Script::new(vec![step(&format!("POST {PATH}"), secret(&owner().id))]);
    let token = create(&workload(client), "abcdef", &"0123456789abcdef".into(), &owner(), at()).await.unwrap();
    assert_eq!(token.expires, Some("2026-11-21T12:00:00Z".parse().unwrap()));
    let sent: Secret = serde_json::from_value(script.seen()[0].body.clone()).unwrap();
    let text = |key: &str| String::from_utf8(sent.data.as_ref().unwrap()[key].0.clone()).unwrap();
    assert_eq!(sent.type_.as_deref(), Some("bootstrap.kubernetes.io/token"));
    assert_eq!(sent.metadata.name.as_deref(), Some("bootstrap-token-abcdef"));
    assert_eq!((text("token-id"), text("token-secret")), ("abcdef".into(), "0123456789abcdef".into()));
    assert_eq!((text("expiration"), text("auth-extra-groups")), ("2026-11-21T12:00:00Z".into(), "system:bootstrappers:capw".into()));
    assert_eq!((text("usage-bootstrap-authentication"), text("usage-bootstrap-signing")), ("true".into(), "true".into()));
    assert!(!format!("{token:?}").contains("0123456789abcdef"));
}

#[tokio::test]
async fn after_a_crash_the_existing_token_counts_but_not_a_strangers() {
    let again = |owner_id: &str| {
        vec![refuse(&format!("POST {PATH}"), 409, "AlreadyExists"), step(&format!("GET {PATH}/bootstrap-token-abcdef"), secret(owner_id))]
    };
    let (client, _script) = Script::new(again(&owner().id));
    let token = create(&workload(client), "abcdef", &"fedcba9876543210".into(), &owner(), at()).await.unwrap();
    assert_eq!(token.secret.expose_secret(), "0123456789abcdef");

    let (client, _script) = Script::new(again("another"));
    let error = create(&workload(client), "abcdef", &"x".into(), &owner(), at()).await.unwrap_err();
    assert!(matches!(error, WorkloadError::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn only_the_owner_deletes_and_exactly_what_was_read() {
    let (client, script) = Script::new(vec![
        step(&format!("GET {PATH}/bootstrap-token-abcdef"), secret("another")),
        step(&format!("GET {PATH}/bootstrap-token-abcdef"), secret(&owner().id)),
        step(&format!("DELETE {PATH}/bootstrap-token-abcdef"), secret(&owner().id)),
        refuse(&format!("GET {PATH}/bootstrap-token-abcdef"), 404, "NotFound"),
    ]);
    let workload = workload(client);
    assert!(!delete(&workload, "abcdef", &owner().id).await.unwrap());
    assert!(delete(&workload, "abcdef", &owner().id).await.unwrap());
    assert_eq!(script.seen()[2].body["preconditions"], json!({ "uid": "u-1", "resourceVersion": "5" }));
    assert!(!delete(&workload, "abcdef", &owner().id).await.unwrap());
}

#[tokio::test]
async fn tokens_of_an_owner_are_found_by_label_and_those_of_others_stay() {
    let list = json!({"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": [secret("another"), secret(&owner().id)]});
    let (client, script) = Script::new(vec![step(&format!("GET {PATH}"), list), step(&format!("DELETE {PATH}/bootstrap-token-abcdef"), json!({}))]);
    assert_eq!(delete_all_of(&workload(client), &owner().id).await.unwrap(), 1);
    assert!(script.seen()[0].query.contains("labelSelector=app.kubernetes.io%2Fmanaged-by%3Dcapw"), "{}", script.seen()[0].query);
    assert_eq!(script.seen()[1].body["preconditions"], json!({ "uid": "u-1", "resourceVersion": "5" }));
}

#[tokio::test]
async fn a_token_made_here_is_deleted_without_a_look_and_no_other() {
    let path = format!("DELETE {PATH}/bootstrap-token-abcdef");
    let (client, script) = Script::new(vec![step(&path, secret("any")), refuse(&path, 404, "NotFound"), refuse(&path, 409, "Conflict")]);
    let workload = workload(client);
    assert!(delete_made(&workload, "abcdef", "u-1").await.unwrap());
    assert_eq!(script.seen()[0].body["preconditions"], json!({ "uid": "u-1" }));
    assert!(!delete_made(&workload, "abcdef", "u-1").await.unwrap());
    let another = delete_made(&workload, "abcdef", "u-1").await.unwrap_err();
    assert!(matches!(another, WorkloadError::Api(ApiError::Conflict(_))), "{another:?}");
}

#[tokio::test]
async fn an_extension_changes_the_end_only() {
    let (client, script) = Script::new(vec![step(&format!("PATCH {PATH}/bootstrap-token-abcdef"), secret(&owner().id))]);
    let token = Token::read(serde_json::from_value(secret(&owner().id)).unwrap()).unwrap();
    extend(&workload(client), &token, "2026-11-21T13:00:00Z".parse().unwrap()).await.unwrap();
    let body = &script.seen()[0].body;
    assert_eq!(body["metadata"], json!({ "uid": "u-1", "resourceVersion": "5" }));
    assert_eq!(body["data"], json!({ "expiration": ByteString(b"2026-11-21T13:00:00Z".to_vec()) }));
}

#[tokio::test]
async fn the_cause_is_named_in_words() {
    let (client, _script) = Script::new(vec![refuse(&format!("GET {PATH}/bootstrap-token-abcdef"), 401, "Unauthorized")]);
    let error = get(&workload(client), "abcdef").await.unwrap_err();
    assert_eq!(error, WorkloadError::Unauthorized { endpoint: "https://10.0.0.1:6443".into() });
}
