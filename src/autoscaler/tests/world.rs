//! One pool in a minimal API server, the caches that show it, and a client of the service.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::api::machine::WindowsMachine;
use crate::api::pool::{REMOVE_ANNOTATION, WindowsNodePool};
use crate::autoscaler::server::{Bound, Security, Settings};
use crate::autoscaler::wire::ExternalGrpcNode;
use crate::autoscaler::wire::cloud_provider_client::CloudProviderClient;
use crate::autoscaler::{NodeGroups, ServiceHandle};
use crate::kinds::pool::decide::template::Template;
use crate::kube_api::cluster::Cluster;
use crate::telemetry::Metrics;

pub const POOL: &str = "lab/windows";
/// The autoscaler's name in its certificate.
const CLIENT: &str = "cluster-autoscaler";

/// How the API server fails at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The API server writes, and the answer is lost.
    AnswerLost,
    /// The request is lost before the write.
    RequestLost,
    /// Another client writes first, and changes a label.
    Overtaken,
}

/// The stored objects, and the cached version of the pool.
pub struct World {
    pub pool: Value,
    pub shown: Value,
    pub machines: Vec<WindowsMachine>,
    pub pods_per_node: Option<u64>,
    pub faults: VecDeque<Fault>,
    pub writes: usize,
}

#[derive(Clone)]
pub struct Shared(pub Arc<Mutex<World>>);

impl Shared {
    /// A pool of 0 to 5 machines with that many machines, all of which are Nodes.
    pub fn new(machines: usize) -> Self {
        let pool = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": "windows", "namespace": "lab", "uid": "pool", "generation": 1, "resourceVersion": "1"},
            "spec": {
                "cluster": {}, "replicas": machines, "version": "v1.36.3", "autoscaling": {"minReplicas": 0, "maxReplicas": 5},
                "template": {"machine": {"image": "w", "cpus": 4, "memory": "8Gi"}, "bootstrap": {"kubelet": {"nodeLabels": {"example.com/a": "b"}}}},
            },
        });
        let machines = (0..machines).map(|n| machine(&format!("m{n}"), "NodeJoined", "True", "Joined")).collect();
        Self(Arc::new(Mutex::new(World { shown: pool.clone(), pool, machines, pods_per_node: None, faults: VecDeque::new(), writes: 0 })))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.0.lock())
    }

    pub fn replicas(&self) -> i64 {
        self.with(|w| w.pool["spec"]["replicas"].as_i64().unwrap())
    }

    /// Returns the names of the machines that are marked for removal, as stored.
    pub fn named(&self) -> String {
        self.with(|w| w.pool["metadata"]["annotations"][REMOVE_ANNOTATION].as_str().unwrap_or_default().to_owned())
    }

    /// Brings the caches up to date.
    pub fn show(&self) {
        self.with(|w| w.shown = w.pool.clone());
    }

    fn client(&self) -> Client {
        let shared = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let shared = shared.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                assert_eq!(parts.uri.path(), "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsnodepools/windows");
                match shared.with(|w| w.answer(&parts.method, &serde_json::from_slice(&bytes).unwrap_or_default())) {
                    Some((code, answer)) => Ok(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()),
                    None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                }
            }
        });
        Client::new(service, "default")
    }
}

impl World {
    fn answer(&mut self, method: &Method, patch: &Value) -> Option<(u16, Value)> {
        if method == Method::GET {
            return Some((200, self.pool.clone()));
        }
        assert_eq!(method, Method::PATCH);
        let fault = self.faults.pop_front();
        match fault {
            Some(Fault::RequestLost) => return None,
            Some(Fault::Overtaken) => self.write(&json!({"metadata": {"labels": {"changed": "meanwhile"}}})),
            _ => {}
        }
        if patch["metadata"]["resourceVersion"] != self.pool["metadata"]["resourceVersion"] {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "message": "changed", "code": 409});
            return Some((409, status));
        }
        self.write(patch);
        self.writes += 1;
        (fault != Some(Fault::AnswerLost)).then(|| (200, self.pool.clone()))
    }

    fn write(&mut self, patch: &Value) {
        let before = self.pool["spec"].clone();
        json_patch::merge(&mut self.pool, patch);
        let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
        self.pool["metadata"]["resourceVersion"] = json!((number(&self.pool["metadata"]["resourceVersion"]) + 1).to_string());
        if self.pool["spec"] != before {
            self.pool["metadata"]["generation"] = json!(self.pool["metadata"]["generation"].as_i64().unwrap() + 1);
        }
    }
}

impl NodeGroups for Shared {
    fn pools(&self) -> Vec<Arc<WindowsNodePool>> {
        vec![Arc::new(serde_json::from_value(self.with(|w| w.shown.clone())).unwrap())]
    }
    fn pool(&self, namespace: &str, name: &str) -> Option<Arc<WindowsNodePool>> {
        self.pools().into_iter().find(|_| (namespace, name) == ("lab", "windows"))
    }
    fn machines(&self, _: &WindowsNodePool) -> Vec<Arc<WindowsMachine>> {
        self.with(|w| w.machines.iter().cloned().map(Arc::new).collect())
    }
    fn pods_per_node(&self, _: &WindowsNodePool) -> Option<u64> {
        self.with(|w| w.pods_per_node)
    }
    fn template(&self, pool: &WindowsNodePool) -> Result<Template, String> {
        let template = &pool.spec.template;
        let machine = template.machine.clone().ok_or("no machine")?;
        Ok(Template { machine, bootstrap: template.bootstrap.clone(), version: pool.spec.version.clone() })
    }
}

/// A machine of the hypervisor `h` with one condition.
pub fn machine(name: &str, condition: &str, status: &str, reason: &str) -> WindowsMachine {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-{name}")},
        "spec": {"image": "w", "providerID": format!("windows://h/{}", crate::api::name::VmUuid::of(&format!("uid-{name}")))},
        "status": {"conditions": [
            {"type": condition, "status": status, "reason": reason, "message": "said so", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
    .unwrap()
}

/// The Node of such a machine.
pub fn node(name: &str) -> ExternalGrpcNode {
    let provider_id = machine(name, "NodeJoined", "True", "Joined").spec.provider_id.unwrap();
    ExternalGrpcNode { provider_id, name: name.to_owned(), ..ExternalGrpcNode::default() }
}

/// A certificate authority that signs certificates for tests.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns the certificate and key of the service, or of a client with this name.
    pub fn sign(&self, purpose: ExtendedKeyUsagePurpose, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// Writes the files of a server that accepts clients of `clients`.
    pub fn write(&self, directory: &Path, clients: &Authority) {
        let (certificate, key) = self.sign(ExtendedKeyUsagePurpose::ServerAuth, "service");
        for (name, text) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", clients.pem())] {
            std::fs::write(directory.join(name), text).unwrap();
        }
    }
}

/// Accepts only clients with the name `CLIENT`.
pub fn tls(directory: &Path) -> Security {
    Security::Tls { directory: directory.to_owned(), clients: vec![CLIENT.to_owned()] }
}

/// A running service, which ends when this value is dropped.
pub struct Running {
    pub handle: ServiceHandle,
    pub metrics: Metrics,
    pub directory: tempfile::TempDir,
    pub address: std::net::SocketAddr,
    end: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Running {
    /// Starts a server with a certificate of this authority. The service is not open yet.
    pub async fn start(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        authority.write(directory.path(), authority);
        let settings = Settings { address: ([127, 0, 0, 1], 0).into(), security: tls(directory.path()) };
        let bound = Bound::new(&settings).await.unwrap().reload_every(Duration::from_millis(20));
        let address = bound.address().unwrap();
        let (handle, metrics, end) = (ServiceHandle::default(), Metrics::default(), CancellationToken::new());
        tokio::spawn(bound.serve(handle.clone(), metrics.clone(), end.clone()));
        Self { handle, metrics, directory, address, end }
    }

    /// Connects a client with a certificate of `clients` that trusts servers of `servers`.
    pub async fn connect(&self, servers: &Authority, clients: &Authority) -> Result<CloudProviderClient<Channel>, tonic::transport::Error> {
        self.connect_as(CLIENT, servers, clients).await
    }

    /// Connects like `connect`, with another client name.
    pub async fn connect_as(
        &self,
        name: &str,
        servers: &Authority,
        clients: &Authority,
    ) -> Result<CloudProviderClient<Channel>, tonic::transport::Error> {
        let (certificate, key) = clients.sign(ExtendedKeyUsagePurpose::ClientAuth, name);
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(servers.pem()))
            .identity(tonic::transport::Identity::from_pem(certificate, key))
            .domain_name("127.0.0.1");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address))?.tls_config(tls)?;
        Ok(CloudProviderClient::new(endpoint.connect().await?))
    }
}

/// A service that leads, and its client.
pub async fn served(shared: &Shared) -> (Running, CloudProviderClient<Channel>) {
    let authority = Authority::new();
    let running = Running::start(&authority).await;
    running.handle.open(Arc::new(shared.clone()), Cluster::new(shared.client()));
    let client = running.connect(&authority, &authority).await.unwrap();
    (running, client)
}

/// A new leader without any remembered numbers.
pub fn successor(running: &Running, shared: &Shared) {
    running.handle.close();
    running.handle.open(Arc::new(shared.clone()), Cluster::new(shared.client()));
}
