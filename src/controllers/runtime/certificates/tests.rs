use k8s_openapi::ByteString;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::*;
use crate::api::bootstrap_config::{JOIN_GROUP, JOIN_SIGNER};
use crate::cluster::mock::{Script, refuse, step};
use crate::controllers::runtime::caches::Caches;
use crate::controllers::testing::{holding, read, shared};
use crate::lifecycle::identity::HYPERVISOR_ANNOTATION;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn config() -> Value {
    json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "c", "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "win-1", "uid": "m", "controller": true}]},
        "spec": {}})
}

fn caches() -> Caches {
    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": "win-1"}}});
    let windows_machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "w", "annotations": {HYPERVISOR_ANNOTATION: "h1"}}, "spec": {"image": "w"}});
    Caches { configs: holding(vec![config()]), machines: holding(vec![machine]), windows_machines: holding(vec![windows_machine]), ..Caches::empty() }
}

/// What the kubelet of the machine asks for.
fn request() -> Value {
    let mut asked = CertificateParams::new(vec![]).unwrap();
    asked.distinguished_name = DistinguishedName::new();
    asked.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    asked.distinguished_name.push(DnType::CommonName, "system:node:win-1");
    let pem = asked.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "node-csr-1", "uid": "r", "resourceVersion": "1"},
        "spec": {"request": ByteString(pem.into_bytes()), "signerName": JOIN_SIGNER, "usages": ["digital signature", "client auth"],
            "username": format!("system:bootstrap:{}", token_id(&read(config()))), "groups": [JOIN_GROUP]}})
}

fn list(items: Vec<Value>) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequestList", "metadata": {}, "items": items})
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_fails_is_tried_again() {
    let (shared, _) = shared(caches(), 1, vec![]);
    let (client, script) = Script::new(vec![
        refuse("GET /api/v1/nodes/win-1", 404, "NotFound"),
        refuse(&format!("PUT {REQUESTS}/node-csr-1/approval"), 500, "InternalError"),
        refuse(&format!("GET {REQUESTS}"), 503, "ServiceUnavailable"),
        refuse("GET /api/v1/nodes/win-1", 504, "Timeout"),
        step(&format!("GET {REQUESTS}"), list(vec![request()])),
        refuse("GET /api/v1/nodes/win-1", 404, "NotFound"),
        step(&format!("PUT {REQUESTS}/node-csr-1/approval"), request()),
    ]);
    let workload = Workload { client, ca_pem: None, server: String::new(), fingerprint: String::new(), gate: Default::default() };
    let (cluster, turns) = (ClusterRef::cluster_api("lab", "c1"), Arc::new(Semaphore::new(1)));
    handle_until_done(shared.clusters.clone(), cluster, workload, read(request()), turns).await;
    assert_eq!(script.seen()[6].body["status"]["conditions"][0]["type"], "Approved");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_gone_is_left() {
    let (shared, _) = shared(caches(), 1, vec![]);
    let (client, _script) =
        Script::new(vec![refuse("GET /api/v1/nodes/win-1", 500, "InternalError"), step(&format!("GET {REQUESTS}"), list(vec![]))]);
    let workload = Workload { client, ca_pem: None, server: String::new(), fingerprint: String::new(), gate: Default::default() };
    let (cluster, turns) = (ClusterRef::cluster_api("lab", "c1"), Arc::new(Semaphore::new(1)));
    handle_until_done(shared.clusters.clone(), cluster, workload, read(request()), turns).await;
}
