use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::runtime::watcher::Event;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::domain::identity::INFRASTRUCTURE;
use crate::engine::caches::Caches;
use crate::engine::pending;
use crate::engine::serving_certificates::*;
use crate::kinds::machine::report::status;
use crate::kube_api::mock::{Exchange, Script, hang, refuse, step};
use crate::kube_api::workload::Workload;
use crate::testing::{changing, holding, read, shared};
use crate::vm::{Power, Present, Seeded};

const VM: &str = "windows://h1/3f2504e0-4f89-51d3-9a0c-0305e82c3301";

fn stage(exchanges: Vec<Exchange>) -> (Serves, Script) {
    let machines = vec![machine("win-1", &["10.0.0.5", "10.0.0.7"]), machine("win-2", &["10.0.0.7"])];
    with(Caches { machines: holding(vec![of_core()]), windows_machines: holding(machines), ..Caches::empty() }, exchanges)
}

fn of_core() -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "WindowsMachine", "name": "win-1"}}})
}

fn with(caches: Caches, exchanges: Vec<Exchange>) -> (Serves, Script) {
    let (shared, script) = shared(caches, 1, exchanges);
    let workload = Workload::of(shared.management.cluster.client().clone());
    (Serves(Place { clusters: shared.clusters.clone(), cluster: ClusterRef::cluster_api("lab", "c1"), workload }), script)
}

/// A WindowsMachine whose VM was observed with these addresses, as a driver lists it.
fn machine(name: &str, addresses: &[&str]) -> Value {
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "win-1", "uid": "m", "controller": true});
    let mut machine: WindowsMachine = read(json!({"apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "WindowsMachine",
        "metadata": {"name": name, "namespace": "lab", "uid": name, "labels": {"cluster.x-k8s.io/cluster-name": "c1"}, "ownerReferences": [owner]},
        "spec": {"image": "w", "providerID": if name == "win-1" { VM } else { "windows://h1/3f2504e0-4f89-51d3-9a0c-0305e82c3302" }}}));
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let seen = Present { power: Power::On, seeded: Seeded::No, vm: true, addresses, report: None, trouble: None, warning: None };
    machine.status = Some(status(&machine, &[], Some(&seen), None, Timestamp::UNIX_EPOCH));
    json!(machine)
}

fn request(node: &str, address: &str) -> CertificateSigningRequest {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    parameters.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    parameters.subject_alt_names = vec![SanType::IpAddress(address.parse().unwrap())];
    let pem = parameters.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let mut request: CertificateSigningRequest = read(
        json!({"metadata": {"name": "csr", "uid": "u", "resourceVersion": "1"}, "spec": {"request": "",
        "signerName": SERVING_SIGNER, "username": format!("system:node:{node}"), "groups": ["system:nodes"], "usages": ["digital signature", "server auth"]}}),
    );
    request.spec.request = ByteString(pem.into_bytes());
    request
}

fn its_node() -> Exchange {
    step("GET /api/v1/nodes/win-1", json!({"metadata": {"name": "win-1"}, "spec": {"providerID": VM}}))
}

const APPROVAL: &str = "PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/csr/approval";

fn approval() -> Exchange {
    step(APPROVAL, json!(request("win-1", "10.0.0.5")))
}

fn told() -> Exchange {
    step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}))
}

/// Handles the events of a watch for that long.
async fn handle_for(seconds: u64, serves: &Serves, request: CertificateSigningRequest) {
    let events = stream::iter([Ok(Event::Apply(request))]).chain(stream::pending());
    let _ = timeout(Duration::from_secs(seconds), pending::handle_all(serves.clone(), events)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_gets_a_certificate_for_the_address_that_its_hypervisor_reports() {
    let (serves, script) = stage(vec![its_node(), approval()]);
    handle_for(60, &serves, request("win-1", "10.0.0.5")).await;
    assert_eq!(script.seen()[1].body["status"]["conditions"][0]["reason"], csr::SERVING_REASON);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_another_machine_has_too_is_refused_and_told_once() {
    let (serves, script) = stage(vec![its_node(), told(), its_node()]);
    handle_for(40, &serves, request("win-1", "10.0.0.7")).await;
    assert!(script.seen()[1].body["note"].as_str().unwrap().contains("10.0.0.7"), "{:?}", script.seen()[1]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_reported_later_is_approved_then() {
    let (machines, show) = changing();
    show(machine("win-1", &[]));
    let (serves, script) = with(Caches { machines: holding(vec![of_core()]), windows_machines: machines, ..Caches::empty() }, {
        vec![its_node(), told(), its_node(), approval()]
    });
    let later = async {
        sleep(Duration::from_secs(15)).await;
        assert!(script.seen()[1].body["note"].as_str().unwrap().contains("no known address"), "{:?}", script.seen());
        show(machine("win-1", &["10.0.0.5"]));
    };
    tokio::join!(handle_for(60, &serves, request("win-1", "10.0.0.5")), later);
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_or_comes_too_early_is_kept() {
    let (of_cores, show_core) = changing();
    let (machines, show_machine) = changing();
    let exchanges = vec![its_node(), refuse(APPROVAL, 500, "InternalError"), its_node(), approval()];
    let (serves, script) = with(Caches { machines: of_cores, windows_machines: machines, ..Caches::empty() }, exchanges);
    let later = async {
        sleep(Duration::from_secs(5)).await;
        show_machine(machine("win-1", &["10.0.0.5"]));
        sleep(Duration::from_secs(30)).await;
        assert!(script.seen().is_empty(), "its Machine is not seen yet");
        show_core(of_core());
    };
    tokio::join!(handle_for(120, &serves, request("win-1", "10.0.0.5")), later);
    assert_eq!(script.seen().len(), 4);
}

/// A read that hangs delays no request of another node.
#[tokio::test(start_paused = true)]
async fn requests_are_handled_side_by_side() {
    let (serves, script) = stage(vec![hang("GET /api/v1/nodes/win-2"), its_node(), approval()]);
    let mut of_other = request("win-2", "10.0.0.7");
    (of_other.metadata.name, of_other.metadata.uid) = (Some("a".into()), Some("v".into()));
    let events = stream::iter([of_other, request("win-1", "10.0.0.5")].map(|request| Ok(Event::Apply(request)))).chain(stream::pending());
    let _ = timeout(Duration::from_secs(5), pending::handle_all(serves, events)).await;
    assert_eq!(script.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_others_are_left_to_others() {
    let (serves, _script) = stage(vec![]);
    handle_for(100, &serves, request("linux-1", "10.0.0.5")).await;

    let mut first = machine("win-1", &["10.0.0.5"]);
    first["metadata"]["namespace"] = json!("other");
    first["metadata"]["uid"] = json!("a");
    let machines = vec![first, machine("win-1", &["10.0.0.6"])];
    let (serves, _script) = with(Caches { machines: holding(vec![of_core()]), windows_machines: holding(machines), ..Caches::empty() }, vec![]);
    // Its machine is in another namespace, and this object is a copy of it.
    handle_for(100, &serves, request("win-1", "10.0.0.6")).await;
}
