use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use super::*;
use crate::cluster::mock::{Exchange, Script, refuse, step};
use crate::controllers::runtime::caches::Caches;
use crate::controllers::testing::{holding, read, shared};
use crate::lifecycle::identity::INFRASTRUCTURE;
use crate::lifecycle::machine::report::status;
use crate::vm::{Power, Present, Seeded};

const VM: &str = "windows://h1/3f2504e0-4f89-51d3-9a0c-0305e82c3301";

fn stage(exchanges: Vec<Exchange>) -> (WorkloadClusters, ClusterRef, Workload, Script) {
    stage_with(true, exchanges)
}

/// `is_seen`: the Machine is in the cache.
fn stage_with(is_seen: bool, exchanges: Vec<Exchange>) -> (WorkloadClusters, ClusterRef, Workload, Script) {
    let core = "cluster.x-k8s.io/v1beta2";
    let of_core = json!({"apiVersion": core, "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "WindowsMachine", "name": "win-1"}}});
    let machines = vec![machine("win-1", &["10.0.0.5", "10.0.0.7"]), machine("win-2", &["10.0.0.7"])];
    let of_core = if is_seen { vec![of_core] } else { vec![] };
    stage_of(of_core, machines, exchanges)
}

fn stage_of(of_core: Vec<Value>, machines: Vec<Value>, exchanges: Vec<Exchange>) -> (WorkloadClusters, ClusterRef, Workload, Script) {
    let caches = Caches { machines: holding(of_core), windows_machines: holding(machines), ..Caches::empty() };
    let (shared, script) = shared(caches, 1, exchanges);
    let workload = Workload::of(shared.management.cluster.client().clone());
    (shared.clusters.clone(), ClusterRef::cluster_api("lab", "c1"), workload, script)
}

/// A WindowsMachine whose VM was seen with these addresses, as a driver lists it.
fn machine(name: &str, addresses: &[&str]) -> Value {
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "win-1", "uid": "m", "controller": true});
    let mut machine: WindowsMachine = read(json!({"apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"), "kind": "WindowsMachine",
        "metadata": {"name": name, "namespace": "lab", "uid": name, "labels": {"cluster.x-k8s.io/cluster-name": "c1"}, "ownerReferences": [owner]},
        "spec": {"image": "w", "providerID": VM}}));
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

#[tokio::test]
async fn a_machine_gets_a_certificate_for_the_address_that_its_hypervisor_reports() {
    let approval = step("PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/csr/approval", json!(request("win-1", "10.0.0.5")));
    let (clusters, cluster, workload, script) = stage(vec![its_node(), approval]);
    handle(&clusters, &cluster, &workload, &request("win-1", "10.0.0.5")).await.unwrap();
    assert_eq!(script.seen()[1].body["status"]["conditions"][0]["reason"], csr::SERVING_REASON);
}

#[tokio::test]
async fn an_address_that_another_machine_has_too_is_refused_and_told_once() {
    let (clusters, cluster, workload, script) =
        stage(vec![its_node(), step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({})), its_node()]);
    for _ in 0..2 {
        handle(&clusters, &cluster, &workload, &request("win-1", "10.0.0.7")).await.unwrap();
    }
    assert!(script.seen()[1].body["note"].as_str().unwrap().contains("10.0.0.7"), "{:?}", script.seen()[1]);
}

#[tokio::test]
async fn a_request_that_fails_or_comes_too_early_is_kept() {
    const APPROVAL: &str = "PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/csr/approval";
    let ours = || request("win-1", "10.0.0.5");
    let mut waiting = HashMap::new();
    let (clusters, cluster, workload, _script) = stage_with(false, vec![]);
    handle_or_keep(&clusters, &cluster, &workload, ours(), &mut waiting).await;
    assert_eq!(waiting.len(), 1, "its Machine is not seen yet");

    let exchanges = vec![its_node(), refuse(APPROVAL, 500, "InternalError"), its_node(), step(APPROVAL, json!(ours()))];
    let (clusters, cluster, workload, _script) = stage(exchanges);
    handle_or_keep(&clusters, &cluster, &workload, ours(), &mut waiting).await;
    assert_eq!(waiting.len(), 1, "the approval failed");
    handle_or_keep(&clusters, &cluster, &workload, ours(), &mut waiting).await;
    assert!(waiting.is_empty());
}

#[tokio::test]
async fn nodes_of_others_are_left_to_others() {
    let (clusters, cluster, workload, _script) = stage(vec![]);
    handle(&clusters, &cluster, &workload, &request("linux-1", "10.0.0.5")).await.unwrap();

    let mut first = machine("win-1", &["10.0.0.5"]);
    first["metadata"]["namespace"] = json!("other");
    first["metadata"]["uid"] = json!("a");
    let (clusters, cluster, workload, _script) = stage_of(vec![], vec![first, machine("win-1", &["10.0.0.6"])], vec![]);
    let done = handle(&clusters, &cluster, &workload, &request("win-1", "10.0.0.6")).await.unwrap();
    assert!(matches!(done, Handled::Done), "its machine is in another namespace, and this is a copy of it");
}
