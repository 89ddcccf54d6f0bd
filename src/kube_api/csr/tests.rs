use futures::StreamExt;
use serde_json::json;

use crate::kube_api::csr::*;
use crate::kube_api::mock::{Script, refuse, step};

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request() -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": "csr-1", "uid": "u-1", "resourceVersion": "3" },
        "spec": { "request": "", "signerName": JOIN_SIGNER, "username": "system:bootstrap:abcdef" },
    }))
    .unwrap()
}

#[tokio::test]
async fn an_approval_names_the_version_that_was_judged() {
    let answer = serde_json::to_value(request()).unwrap();
    let (client, script) = Script::new(vec![
        step(&format!("PUT {PATH}/csr-1/approval"), answer),
        refuse(&format!("PUT {PATH}/csr-1/approval"), 409, "Conflict"),
        refuse(&format!("PUT {PATH}/csr-1/approval"), 404, "NotFound"),
    ]);
    let workload = Workload::of(client);
    let now = "2026-11-21T12:00:00Z".parse().unwrap();
    assert!(approve(&workload, &request(), APPROVED_REASON, "join of win-1", now).await.unwrap());
    let body = &script.seen()[0].body;
    assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("u-1"), &json!("3")));
    assert_eq!(body["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(body["status"]["conditions"][0]["status"], "True");
    assert_eq!(approve(&workload, &request(), APPROVED_REASON, "", now).await.unwrap_err().label(), "conflict");
    assert!(!approve(&workload, &request(), APPROVED_REASON, "", now).await.unwrap());
}

#[tokio::test]
async fn the_watch_asks_for_the_join_signer_only_and_tells_errors() {
    let (client, script) = Script::new(vec![refuse(&format!("GET {PATH}"), 403, "Forbidden")]);
    let workload = Workload::of(client);
    let told: Vec<_> = events(&workload, JOIN_SIGNER).take(2).collect().await;
    assert!(matches!(told.last(), Some(Err(WorkloadError::Forbidden { .. }))), "{told:?}");
    assert!(script.seen()[0].query.contains("fieldSelector=spec.signerName%3Dkubernetes.io%2Fkube-apiserver-client-kubelet"), "{:?}", script.seen());
}

#[tokio::test]
async fn of_all_requests_the_names_of_those_that_are_meant_are_kept() {
    let named = |name: String| {
        let mut request = request();
        request.metadata.name = Some(name);
        request
    };
    let page = |requests: Vec<CertificateSigningRequest>, next: &str| {
        let items = serde_json::to_value(requests).unwrap();
        let metadata = json!({"continue": next});
        step(
            &format!("GET {PATH}"),
            json!({"kind": "CertificateSigningRequestList", "apiVersion": "certificates.k8s.io/v1", "metadata": metadata, "items": items}),
        )
    };
    let names = ["a", "b", "c"].map(str::to_owned);
    let pages = vec![page(names[..2].iter().cloned().map(named).collect(), "1"), page(vec![named(names[2].clone())], "")];
    let (client, _script) = Script::new(pages);
    let found = names_of(&Workload::of(client), |request| request.name_any() != "b").await.unwrap();
    assert_eq!(found, ["a", "c"]);
    let long = (0..5).map(|_| named("x".repeat(NAMES / 4))).collect();
    let (client, _script) = Script::new(vec![page(long, "")]);
    let error = names_of(&Workload::of(client), |_| true).await.unwrap_err();
    assert_eq!(error.label(), "workload_too_large");
}
