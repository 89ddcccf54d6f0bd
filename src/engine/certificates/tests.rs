//! Tests with one machine that may join, and requests for its certificate.

use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::watcher::Event;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::api::bootstrap_config::JOIN_GROUP;
use crate::api::cluster_ref::{ClusterSource, JOINS_ANNOTATION};
use crate::domain::identity::{HYPERVISOR_ANNOTATION, INFRASTRUCTURE};
use crate::engine::caches::Caches;
use crate::engine::certificates::*;
use crate::engine::pending;
use crate::kube_api::mock::{Exchange, Script, refuse, step};
use crate::kube_api::workload::Workload;
use crate::testing::{changing, holding, read, shared};

const NODE: &str = "GET /api/v1/nodes/win-1";

fn stage(exchanges: Vec<Exchange>) -> (WorkloadClusters, ClusterRef, Workload, Script) {
    let (clusters, workload, script) = with(caches(vec![machine("lab", "w", Value::Null)]), exchanges);
    (clusters, ClusterRef::cluster_api("lab", "c1"), workload, script)
}

fn machine(namespace: &str, uid: &str, provider_id: Value) -> Value {
    json!({"apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": namespace, "uid": uid, "annotations": {HYPERVISOR_ANNOTATION: "h1"}},
        "spec": {"image": "w", "providerID": provider_id}})
}

fn caches(machines: Vec<Value>) -> Caches {
    let core = "cluster.x-k8s.io/v1beta2";
    let of_core = json!({"apiVersion": core, "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "WindowsMachine", "name": "win-1"}}});
    let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "c", "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
            "ownerReferences": [{"apiVersion": core, "kind": "Machine", "name": "win-1", "uid": "m", "controller": true}]},
        "spec": {}, "status": {"tokenID": "abcdef"}});
    Caches { machines: holding(vec![of_core]), windows_machines: holding(machines), configs: holding(vec![config]), ..Caches::empty() }
}

fn with(caches: Caches, exchanges: Vec<Exchange>) -> (WorkloadClusters, Workload, Script) {
    let (shared, script) = shared(caches, 1, exchanges);
    let workload = Workload::of(shared.management.cluster.client().clone());
    (shared.clusters.clone(), workload, script)
}

/// Creates a request of that user with its own key.
fn request(name: &str, user: &str, conditions: Value) -> CertificateSigningRequest {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    parameters.distinguished_name.push(DnType::CommonName, "system:node:win-1");
    let pem = parameters.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let mut request: CertificateSigningRequest = read(json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"request": "", "signerName": JOIN_SIGNER, "username": user, "groups": [JOIN_GROUP], "usages": ["digital signature", "client auth"]},
        "status": {"conditions": conditions}}));
    request.spec.request = ByteString(pem.into_bytes());
    request
}

fn approval(name: &str) -> Exchange {
    step(&format!("PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval"), json!(request(name, "x", json!([]))))
}

fn told() -> Exchange {
    step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}))
}

fn note(script: &Script) -> String {
    script.seen().last().unwrap().body["note"].as_str().unwrap_or_default().to_owned()
}

/// Handles the events of a watch for that long.
async fn handle_for(
    seconds: u64,
    clusters: &WorkloadClusters,
    cluster: &ClusterRef,
    workload: &Workload,
    events: impl IntoIterator<Item = Event<CertificateSigningRequest>>,
) {
    let joins = Joins(Place { clusters: clusters.clone(), cluster: cluster.clone(), workload: workload.clone() });
    let events: Vec<_> = events.into_iter().map(Ok).collect();
    let _ = timeout(Duration::from_secs(seconds), pending::handle_all(joins, stream::iter(events).chain(stream::pending()))).await;
}

/// Handles requests one after the other, without judging a refused one again.
async fn handle_all(clusters: &WorkloadClusters, cluster: &ClusterRef, workload: &Workload, requests: Vec<CertificateSigningRequest>) {
    handle_for(20, clusters, cluster, workload, requests.into_iter().map(Event::Apply)).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_key_is_refused_and_told() {
    let (clusters, cluster, workload, script) = stage(vec![refuse(NODE, 404, "NotFound"), approval("first"), refuse(NODE, 404, "NotFound"), told()]);
    handle_all(&clusters, &cluster, &workload, vec![request("first", "system:bootstrap:abcdef", json!([]))]).await;
    handle_all(&clusters, &cluster, &workload, vec![request("second", "system:bootstrap:abcdef", json!([]))]).await;
    assert!(note(&script).contains("second") && note(&script).contains("another key"), "{}", note(&script));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_key_that_was_approved_before_is_known_first() {
    let (clusters, cluster, workload, script) = stage(vec![refuse(NODE, 404, "NotFound"), told()]);
    let approved = json!([{"type": "Approved", "status": "True", "reason": "CAPWApprovedJoin"}]);
    // In the order of a listing, by name.
    let all = vec![request("a-second", "system:bootstrap:abcdef", json!([])), request("b-first", "system:bootstrap:abcdef", approved)];
    let listed = [Event::Init].into_iter().chain(all.into_iter().map(Event::InitApply)).chain([Event::InitDone]);
    handle_for(20, &clusters, &cluster, &workload, listed).await;
    assert!(note(&script).contains("a-second"), "{}", note(&script));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_approver_gave_away_is_told_and_not_given_again() {
    let (clusters, cluster, workload, script) = stage(vec![told(), refuse(NODE, 404, "NotFound"), told()]);
    let by_other = json!([{"type": "Approved", "status": "True", "reason": "AutoApproved"}]);
    handle_all(&clusters, &cluster, &workload, vec![request("squatter", "system:bootstrap:zzzzzz", by_other)]).await;
    assert!(note(&script).contains("system:bootstrap:zzzzzz") && note(&script).contains("another approver"), "{}", note(&script));
    handle_all(&clusters, &cluster, &workload, vec![request("ours", "system:bootstrap:abcdef", json!([]))]).await;
    assert!(note(&script).contains("ours"), "{}", note(&script));
    clusters.certificates().note(&cluster, |known| known.forget("squatter"));
    assert_eq!(clusters.certificates().note(&cluster, |known| known.taken.len()), 0, "what is gone is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_renews_its_certificate_is_left_alone() {
    let (clusters, cluster, workload, _script) = stage(vec![]);
    handle_all(&clusters, &cluster, &workload, vec![request("renewal", "system:node:win-1", json!([]))]).await;
}

/// The copy names a machine whose Node exists, and so would get a certificate for that Node.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_machine_of_another_namespace_gets_no_certificate() {
    let id = json!(format!("windows://h1/{}", crate::api::name::VmUuid::of("original")));
    let machines = vec![machine("other", "original", id.clone()), machine("lab", "w", id)];
    let (clusters, workload, script) = with(caches(machines), vec![]);
    let cluster = ClusterRef::cluster_api("lab", "c1");
    handle_all(&clusters, &cluster, &workload, vec![request("forged", "system:bootstrap:abcdef", json!([]))]).await;
    assert!(script.seen().is_empty(), "it waits until the copy is gone: {:?}", script.seen());
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test(start_paused = true)]
async fn an_approval_that_fails_is_tried_again() {
    let ours = request("ours", "system:bootstrap:abcdef", json!([]));
    let (clusters, cluster, workload, script) = stage(vec![
        refuse(NODE, 404, "NotFound"),
        refuse(&format!("PUT {REQUESTS}/ours/approval"), 500, "InternalError"),
        refuse(NODE, 504, "Timeout"),
        refuse(NODE, 404, "NotFound"),
        approval("ours"),
    ]);
    handle_all(&clusters, &cluster, &workload, vec![ours]).await;
    assert_eq!(script.seen()[4].body["status"]["conditions"][0]["type"], "Approved");
}

/// A machine of a standalone pool whose VM runs, in a cluster whose Nodes are not listed yet.
fn standalone(exchanges: Vec<Exchange>) -> (WorkloadClusters, ClusterRef, Workload, Script) {
    let own = |uid: &str, annotations: Value, owners: Value| json!({"name": "win-1", "namespace": "lab", "uid": uid, "annotations": annotations, "ownerReferences": owners});
    let joins = "secret/there/value";
    let machine = json!({"apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "WindowsMachine", "spec": {"image": "w"},
        "metadata": own("w", json!({JOINS_ANNOTATION: joins, HYPERVISOR_ANNOTATION: "h1"}), json!([])),
        "status": {"initialization": {"provisioned": true}}});
    let owner =
        json!([{"apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "WindowsMachine", "name": "win-1", "uid": "w", "controller": true}]);
    let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": own("c", json!({JOINS_ANNOTATION: joins}), owner), "spec": {}, "status": {"tokenID": "abcdef"}});
    let caches = Caches { windows_machines: holding(vec![machine]), configs: holding(vec![config]), ..Caches::empty() };
    let (clusters, workload, script) = with(caches, exchanges);
    let source = ClusterSource::Kubeconfig { secret: "there".into(), key: "value".into() };
    let cluster = ClusterRef { namespace: "lab".into(), source };
    clusters.nodes().watch(&cluster, &workload, |_| tokio::spawn(std::future::pending::<()>()).abort_handle());
    (clusters, cluster, workload, script)
}

/// A watch reports a request once. After a start, requests may be listed before the objects that identify their machines.
#[tokio::test(start_paused = true)]
async fn a_request_that_comes_before_the_nodes_are_known_is_approved_later() {
    let (clusters, cluster, workload, script) = standalone(vec![refuse(NODE, 404, "NotFound"), approval("early")]);
    let early = vec![request("early", "system:bootstrap:abcdef", json!([]))];
    let later = async {
        sleep(Duration::from_secs(5)).await;
        assert!(script.seen().is_empty(), "nothing is asked meanwhile");
        for event in [Event::Init, Event::InitDone] {
            clusters.nodes().note(&cluster, event, Timestamp::UNIX_EPOCH);
        }
    };
    tokio::join!(handle_all(&clusters, &cluster, &workload, early), later);
    assert_eq!(script.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_gone_is_left_and_another_key_may_come() {
    let ours = request("ours", "system:bootstrap:abcdef", json!([]));
    let (clusters, cluster, workload, _script) = stage(vec![
        refuse(NODE, 404, "NotFound"),
        refuse(&format!("PUT {REQUESTS}/ours/approval"), 500, "InternalError"),
        refuse(NODE, 404, "NotFound"),
        refuse(&format!("PUT {REQUESTS}/ours/approval"), 404, "NotFound"),
        refuse(NODE, 404, "NotFound"),
        approval("next"),
    ]);
    handle_all(&clusters, &cluster, &workload, vec![ours]).await;
    handle_all(&clusters, &cluster, &workload, vec![request("next", "system:bootstrap:abcdef", json!([]))]).await;
}

/// The approval may have succeeded although its answer was lost.
#[tokio::test(start_paused = true)]
async fn while_an_approval_has_no_answer_no_other_key_is_approved() {
    let ours = request("ours", "system:bootstrap:abcdef", json!([]));
    let (clusters, cluster, workload, script) = stage(vec![
        refuse(NODE, 404, "NotFound"),
        refuse(&format!("PUT {REQUESTS}/ours/approval"), 500, "InternalError"),
        refuse(NODE, 404, "NotFound"),
        told(),
    ]);
    handle(&Place { clusters: clusters.clone(), cluster: cluster.clone(), workload: workload.clone() }, &ours).await.unwrap_err();
    handle_all(&clusters, &cluster, &workload, vec![request("second", "system:bootstrap:abcdef", json!([]))]).await;
    assert!(note(&script).contains("another key"), "{}", note(&script));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_node_of_that_name_kept_from_approval_is_approved_when_the_node_is_gone() {
    let foreign = || step(NODE, json!({"metadata": {"name": "win-1"}, "spec": {"providerID": "other://vm"}}));
    let (clusters, cluster, workload, script) = stage(vec![foreign(), told(), foreign(), refuse(NODE, 404, "NotFound"), approval("ours")]);
    let mut ours = request("ours", "system:bootstrap:abcdef", json!([]));
    ours.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    clusters.certificates().note(&cluster, |_| ());
    let later = async {
        sleep(Duration::from_secs(45)).await;
        assert!(script.seen()[1].body["note"].as_str().unwrap().contains("other://vm"), "it is told once");
        assert_eq!((script.seen().len(), clusters.oldest_requests()[0].1), (3, Some(Timestamp::UNIX_EPOCH)));
    };
    tokio::join!(handle_for(90, &clusters, &cluster, &workload, [Event::Apply(ours)]), later);
    assert_eq!((script.seen().len(), clusters.oldest_requests()[0].1), (5, None));
}

/// The cache does not contain the configuration yet.
#[tokio::test(start_paused = true)]
async fn a_request_whose_token_is_not_known_yet_is_approved_later() {
    let (mut caches, (configs, show)) = (caches(vec![machine("lab", "w", Value::Null)]), changing());
    let config = std::mem::replace(&mut caches.configs, configs).all("lab").remove(0);
    let (clusters, workload, script) = with(caches, vec![refuse(NODE, 404, "NotFound"), approval("ours")]);
    let later = async {
        sleep(Duration::from_secs(5)).await;
        show(json!(*config));
    };
    let (cluster, ours) = (ClusterRef::cluster_api("lab", "c1"), request("ours", "system:bootstrap:abcdef", json!([])));
    tokio::join!(handle_for(40, &clusters, &cluster, &workload, [Event::Apply(ours)]), later);
    assert_eq!(script.seen().len(), 2);
}
