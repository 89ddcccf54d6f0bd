mod secret;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::cluster_ref::JOINS_ANNOTATION;
use crate::domain::identity::HYPERVISOR_ANNOTATION;
use crate::engine::caches::Caches;
use crate::kinds::bootstrap_config::reconcile::*;
use crate::kube_api::mock::{Exchange, Script, refuse, step};
use crate::testing::server::{Fault, Server, connect, kubeconfig, kubeconfig_with_ca};
use crate::testing::{holding, reach, read, shared, shared_to, with_answers};

const OBJECT: &str = "PATCH /apis/bootstrap.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsbootstrapconfigs/win-1";
const STATUS: &str = "PATCH /apis/bootstrap.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsbootstrapconfigs/win-1/status";
const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
const TOKEN: &str = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SECRET: &str = "/api/v1/namespaces/lab/secrets/win-1";
const KUBECONFIG: &str = "GET /api/v1/namespaces/lab/secrets/c1-kubeconfig";

fn config(metadata: Value, owner: &str) -> Value {
    let mut all = json!({"name": "win-1", "namespace": "lab", "uid": "c", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
        "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": owner, "name": "win-1", "uid": "m", "controller": true}]});
    json_patch::merge(&mut all, &metadata);
    json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig", "metadata": all, "spec": {}})
}

fn machine() -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "version": "v1.36.3",
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": "win-1"}}})
}

fn cluster() -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}},
        "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}}})
}

fn caches() -> Caches {
    let windows_machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "w", "annotations": {HYPERVISOR_ANNOTATION: "h1"}}, "spec": {"image": "w"}});
    let pool = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "template": {"spec": {"infrastructureRef": {"kind": "WindowsNodePool", "name": "win"}}}}});
    Caches {
        machines: holding(vec![machine()]),
        clusters: holding(vec![cluster()]),
        windows_machines: holding(vec![windows_machine]),
        machine_pools: holding(vec![pool]),
        ..Caches::empty()
    }
}

/// A workload cluster that has a token of `lab/win-1`.
fn holding_token() -> Arc<Mutex<Server>> {
    let token = json!({"apiVersion": "v1", "kind": "Secret", "data": {"token-id": "YWJjZGVm", "token-secret": ""},
        "metadata": {"uid": "t", "resourceVersion": "1", "annotations": {"capw.cluster.x-k8s.io/owner": "lab/win-1"}}});
    let tokens = json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {}, "items": [token]});
    let requests = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequestList", "metadata": {}, "items": []});
    Arc::new(Mutex::new(Server::holding([(TOKENS, tokens), (TOKEN, token), (REQUESTS, requests)])))
}

fn stage(exchanges: Vec<Exchange>) -> (Context, Script) {
    let (shared, script) = shared(caches(), 1, exchanges);
    (shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into())), script)
}

async fn pass(ctx: &Context, object: Value) -> Outcome {
    let object: Arc<WindowsBootstrapConfig> = Arc::new(read(object));
    with_answers(async || reconcile(object.clone(), ctx.clone()).await).await.unwrap()
}

#[tokio::test]
async fn the_finalizer_is_stored_before_anything_is_made() {
    let (ctx, script) = stage(vec![step(OBJECT, config(json!({}), "Machine"))]);
    assert_eq!(pass(&ctx, config(json!({}), "Machine")).await, Outcome::done());
    let metadata = script.seen()[0].body["metadata"].clone();
    assert_eq!((&metadata["finalizers"], &metadata["annotations"][MADE_FOR_ANNOTATION]), (&json!([FINALIZER]), &json!("c1")));
}

/// Whatever happens to the label of a configuration, its token is in the cluster for which it was created.
#[tokio::test]
async fn a_token_goes_although_the_label_of_its_cluster_was_removed() {
    let adopted = json!({"finalizers": [FINALIZER], "labels": null, "annotations": {MADE_FOR_ANNOTATION: "c1"}});
    for (is_leaving, is_paused) in [(true, false), (false, false), (true, true)] {
        let mut object = config(adopted.clone(), "Machine");
        object["status"] = json!({"dataSecretName": "win-1", "tokenID": "abcdef", "tokenCreatedAt": "2026-01-01T00:00:00Z",
            "tokenExpiresAt": "2026-01-01T01:00:00Z"});
        if is_leaving {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let (mut cluster, mut machine) = (cluster(), machine());
        cluster["spec"]["paused"] = json!(is_paused);
        machine["status"] = json!({"nodeRef": {"name": "win-1"}});
        let caches = Caches { clusters: holding(vec![cluster]), machines: holding(vec![machine]), ..caches() };
        let server = holding_token();
        let written = step(if is_leaving && !is_paused { OBJECT } else { STATUS }, object.clone());
        let exchanges = match (is_paused, is_leaving) {
            (true, _) => vec![written],
            (false, true) => vec![kubeconfig(), refuse(&format!("GET {SECRET}"), 404, "NotFound"), written],
            (false, false) => vec![kubeconfig(), written],
        };
        let (shared, _script) = shared_to(caches, 1, exchanges, connect(&server));
        pass(&shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into())), object).await;
        let is_deleted = server.lock().asked.contains(&format!("DELETE {TOKEN}"));
        assert_eq!(is_deleted, !is_paused, "leaving: {is_leaving}, paused: {is_paused}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_is_reported_and_looked_at_again() {
    let adopted = config(json!({"finalizers": [FINALIZER]}), "Machine");
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (ctx, script) = stage(vec![refuse(KUBECONFIG, 404, "NotFound"), step(STATUS, adopted.clone()), event]);
    let outcome = pass(&ctx, adopted).await;
    assert_eq!(outcome, Outcome::requeue_after(std::time::Duration::from_secs(10)));
    let conditions = &script.seen()[1].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Ready" && c["reason"] == "KubeconfigMissing"), "{conditions}");
    assert_eq!(script.seen()[2].body["reason"], "KubeconfigMissing", "no other condition of a configuration says it");
}

#[tokio::test]
async fn a_kubelet_that_is_newer_than_the_api_server_is_reported_before_a_token_is_created() {
    let version = json!({"major": "1", "minor": "35", "gitVersion": "v1.35.4", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "",
        "compiler": "", "platform": ""});
    let server = Arc::new(Mutex::new(Server::holding([("/version", version)])));
    let adopted = config(json!({"finalizers": [FINALIZER]}), "Machine");
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (shared, script) = shared_to(caches(), 1, vec![kubeconfig_with_ca(), step(STATUS, adopted.clone()), event], connect(&server));
    pass(&shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into())), adopted).await;
    let conditions = &script.seen()[1].body["status"]["conditions"];
    let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "Incompatible", "{ready}");
    assert!(ready["message"].as_str().unwrap().contains("the API server is 1.35"), "{ready}");
    assert!(server.lock().asked.iter().all(|line| line.starts_with("GET ")), "nothing is created");
}

/// Every user who may write these kinds can write the annotation that a standalone pool writes.
#[tokio::test]
async fn nothing_is_made_in_the_own_cluster_without_a_pool_that_owns_the_machine() {
    let joins = json!({crate::api::cluster_ref::JOINS_ANNOTATION: "own/cluster"});
    let owned_by = |kind: &str, uid: &str| json!([{"apiVersion": format!("{}/v1alpha1", crate::domain::identity::INFRASTRUCTURE), "kind": kind, "name": "win-1", "uid": uid, "controller": true}]);
    let machine = |owners: Value| {
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "w", "annotations": joins, "ownerReferences": owners}, "spec": {"image": "w"}})
    };
    let pool = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "p"}, "spec": {"cluster": {}, "template": {"machine": {"image": "w"}}}});
    let of_machine = config(json!({"finalizers": [FINALIZER], "labels": null, "annotations": joins}), "Machine");
    let mut of_windows_machine = of_machine.clone();
    of_windows_machine["metadata"]["ownerReferences"] = owned_by("WindowsMachine", "w");
    for (object, owners, asked) in [
        (&of_machine, owned_by("WindowsNodePool", "p"), false),
        (&of_windows_machine, Value::Null, false),
        (&of_windows_machine, owned_by("WindowsNodePool", "another"), false),
        (&of_windows_machine, owned_by("WindowsNodePool", "p"), true),
    ] {
        let caches = Caches { windows_machines: holding(vec![machine(owners)]), pools: holding(vec![pool.clone()]), ..caches() };
        let info = refuse("GET /api/v1/namespaces/kube-public/configmaps/cluster-info", 403, "Forbidden");
        let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
        let (shared, script) = shared(caches, 1, if asked { vec![info, step(STATUS, object.clone()), event] } else { Vec::new() });
        let ctx = shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into()));
        let _ = reconcile(Arc::new(read(object.clone())), ctx).await;
        assert_eq!(!script.seen().is_empty(), asked, "{object}");
    }
}

/// After a restore without status, the object has another UID, and computes another id than the token's.
#[tokio::test]
async fn a_token_of_a_standalone_pool_that_was_never_reported_is_found_by_its_label() {
    let joins = json!({JOINS_ANNOTATION: "secret/c1-kubeconfig/value"});
    let metadata = json!({"finalizers": [FINALIZER], "labels": null, "annotations": joins, "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": null});
    let object = config(metadata, "Machine");
    for may_list in [true, false] {
        let server = holding_token();
        if !may_list {
            server.lock().refused = Some(format!("GET {TOKENS}"));
        }
        let (shared, script) = shared_to(caches(), 1, vec![kubeconfig(), step(OBJECT, object.clone())], connect(&server));
        pass(&shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into())), object.clone()).await;
        assert_eq!(script.seen()[1].body["metadata"]["finalizers"], json!([]), "lists: {may_list}");
        let is_deleted = server.lock().asked.contains(&format!("DELETE {TOKEN}"));
        assert_eq!(is_deleted, may_list);
    }
}

#[tokio::test]
async fn it_goes_although_its_cluster_is_lost_when_no_token_can_be_left() {
    let leaving = config(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}), "Machine");
    let (ctx, script) = stage(vec![refuse(KUBECONFIG, 404, "NotFound"), step(OBJECT, leaving.clone())]);
    pass(&ctx, leaving).await;
    assert_eq!(script.seen()[1].body["metadata"]["finalizers"], json!([]));
}

#[tokio::test]
async fn it_stays_and_says_until_when_while_its_token_may_be_used() {
    let mut leaving = config(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}), "Machine");
    leaving["status"] = json!({"tokenId": "abc123", "tokenCreatedAt": "2026-01-01T00:00:00Z", "tokenExpiresAt": "2026-01-01T02:00:00Z"});
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (ctx, script) = stage(vec![refuse(KUBECONFIG, 404, "NotFound"), step(STATUS, leaving.clone()), event]);
    let error = reconcile(Arc::new(read(leaving)), ctx).await.unwrap_err();
    assert_eq!(error.label(), "kubeconfig_missing");
    let conditions = &script.seen()[1].body["status"]["conditions"];
    let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("KubeconfigMissing")));
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("has expired, at the latest at 2026-01-01T02:00:00Z: Secret lab/c1-kubeconfig"), "{message}");
}

/// The node may request a certificate in the time between two passes, and half the life of a token is long.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_certificate_requests_are_not_watched_yet_is_tried_again_soon() {
    // The first request finds out the identity of the cluster.
    let failing = Some((0, Fault::GivenUp { is_done: false }));
    let server = Arc::new(Mutex::new(Server { failing, ..Server::holding([]) }));
    let (shared, _script) = shared_to(caches(), 1, vec![kubeconfig(), kubeconfig()], connect(&server));
    let ctx = shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into()));
    let mut joining = config(json!({"finalizers": [FINALIZER]}), "Machine");
    let valid =
        json!({"type": "JoinCredentialValid", "status": "True", "reason": "TokenValid", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    joining["status"] = json!({"dataSecretName": "win-1", "tokenID": "abcdef", "tokenCreatedAt": "2026-01-01T00:00:00Z",
        "tokenExpiresAt": "2026-01-01T01:00:00Z", "conditions": [valid]});
    for _ in 0..2 {
        assert_eq!(pass(&ctx, joining.clone()).await, Outcome::requeue_after(WATCH));
        sleep(Duration::from_secs(1)).await;
    }
    sleep(WATCH).await;
    for is_watched in [false, true] {
        assert_eq!(pass(&ctx, joining.clone()).await != Outcome::requeue_after(WATCH), is_watched);
        sleep(Duration::from_secs(1)).await;
    }
}

/// CAPW crashed before it reported the Secret, and had to render the data again after the token cleaner deleted the token.
#[tokio::test]
async fn a_secret_that_was_not_reported_is_brought_up_to_date() {
    const SECRETS: &str = "/api/v1/namespaces/lab/secrets";
    let object: WindowsBootstrapConfig = read(config(json!({"finalizers": [FINALIZER]}), "Machine"));
    let data = |endpoint: &'static str, token: &'static str| vec![("value", endpoint.as_bytes()), ("token", token.as_bytes())];
    let (ctx, script) = stage(vec![step(&format!("POST {SECRETS}"), json!({"metadata": {}}))]);
    assert!(data_secret::ensure_holding(&ctx, &object, Some("c1"), data("10.0.0.1", "abcdef.before")).await.is_ok());
    let mut before = script.seen()[0].body.clone();
    json_patch::merge(&mut before, &json!({"metadata": {"uid": "s", "resourceVersion": "8"}}));
    for (endpoint, token, is_same) in [("10.0.0.1", "abcdef.before", true), ("10.0.0.1", "abcdef.now", false), ("10.0.0.2", "abcdef.before", false)] {
        let mut exchanges = vec![refuse(&format!("POST {SECRETS}"), 409, "AlreadyExists"), step(&format!("GET {SECRETS}/win-1"), before.clone())];
        exchanges.extend((!is_same).then(|| step(&format!("PUT {SECRETS}/win-1"), before.clone())));
        let (ctx, script) = stage(exchanges);
        assert!(data_secret::ensure_holding(&ctx, &object, Some("c1"), data(endpoint, token)).await.is_ok());
        if let Some(put) = script.seen().get(2) {
            assert_eq!((&put.body["data"], &put.body["metadata"]), (&script.seen()[0].body["data"], &before["metadata"]), "{endpoint} {token}");
        }
    }
}

/// The requests to a workload cluster that also has these objects.
async fn asked(
    caches: Caches,
    others: Vec<Value>,
    objects: Vec<(&str, Value)>,
    exchanges: Vec<Exchange>,
    call: impl AsyncFn(&Context),
) -> Vec<String> {
    let list = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "metadata": {}, "items": []});
    let lists = [(TOKENS, list("SecretList", "v1")), (REQUESTS, list("CertificateSigningRequestList", "certificates.k8s.io/v1"))];
    let server = Arc::new(Mutex::new(Server { others, ..Server::holding(lists.into_iter().chain(objects)) }));
    let exchanges = std::iter::once(kubeconfig()).chain(exchanges).collect();
    let (shared, _script) = shared_to(caches, 1, exchanges, connect(&server));
    let ctx = shared.bootstrap_config(Arc::new(|| "0123456789abcdef".to_owned().into()));
    reach(&ctx.clusters, &ClusterRef::cluster_api("lab", "c1")).await;
    call(&ctx).await;
    server.lock().asked.clone()
}

/// If the Cluster stays, core deletes the Node of a machine after the drain.
#[tokio::test]
async fn a_node_goes_with_the_configuration_only_if_its_cluster_goes() {
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("w"));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": "n"}, "spec": {"providerID": id}});
    let mut of_core = serde_json::to_value(&*caches().machines.get("lab", "win-1").unwrap()).unwrap();
    of_core["spec"]["providerID"] = json!(id);
    let object: WindowsBootstrapConfig = read(config(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}), "Machine"));
    for (deleted, goes) in [(Value::Null, false), (json!("2026-01-01T00:00:00Z"), true)] {
        let mut cluster = serde_json::to_value(&*caches().clusters.get("lab", "c1").unwrap()).unwrap();
        cluster["metadata"]["deletionTimestamp"] = deleted;
        let caches = Caches { machines: holding(vec![of_core.clone()]), clusters: holding(vec![cluster]), ..caches() };
        let clean_up = async |ctx: &Context| clean_up::clean_up(ctx, &object, &observe::observe(ctx, &object)).await.unwrap();
        let asked = asked(caches, vec![node.clone()], vec![], vec![], clean_up).await;
        assert_eq!(asked.contains(&"DELETE /api/v1/nodes/win-1".to_owned()), goes, "{asked:?}");
    }
}

#[tokio::test]
async fn a_token_of_another_is_not_extended() {
    use base64::Engine as _;
    const OWNER: &str = "capw.cluster.x-k8s.io/owner";
    let object: WindowsBootstrapConfig = read(config(json!({"finalizers": [FINALIZER]}), "Machine"));
    let id = crate::kinds::bootstrap_config::decide::step::token_id(&object);
    let name = format!("bootstrap-token-{id}");
    let path = format!("/api/v1/namespaces/kube-system/secrets/{name}");
    let text = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    for (owner, is_extended) in [("lab/win-1", true), ("lab/another", false)] {
        let token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "uid": "t", "resourceVersion": "1", "annotations": {OWNER: owner}},
            "data": {"token-id": text(&id), "token-secret": text("0123456789abcdef")}});
        let extend = async |ctx: &Context| {
            let _ = token::extend(ctx, &object, &observe::observe(ctx, &object), jiff::Timestamp::UNIX_EPOCH).await;
        };
        let written = vec![step(STATUS, config(json!({}), "Machine"))];
        let asked = asked(caches(), vec![], vec![(&path, token)], written, extend).await;
        assert_eq!(asked.contains(&format!("PATCH {path}")), is_extended, "{asked:?}");
    }
}
