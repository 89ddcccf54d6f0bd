//! A workload cluster that keeps what is applied, and refuses what it is told to.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::components::read;
use crate::controllers::runtime::caches::Caches;
use crate::controllers::testing::{read as object, shared};

#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    asked: Vec<String>,
    refused: Option<String>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let status = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code}))
        };
        let line = format!("{method} {path}");
        self.asked.push(line.clone());
        if self.refused.as_ref() == Some(&line) {
            return status(403, "Forbidden");
        }
        if path.ends_with("/pods") {
            return (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}));
        }
        match *method {
            Method::PATCH => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                object["metadata"]["uid"] = json!(path);
                self.objects.insert(path.to_owned(), object.clone());
                (200, object)
            }
            Method::DELETE => self.objects.remove(path).map_or_else(|| status(404, "NotFound"), |object| (200, object)),
            _ => self.objects.get(path).map_or_else(|| status(404, "NotFound"), |object| (200, object.clone())),
        }
    }
}

fn workload(server: &Arc<Mutex<Server>>) -> Workload {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (code, answer) = server.lock().unwrap().answer(&parts.method, parts.uri.path(), &body);
            Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    Workload {
        client: Client::new(service, "default"),
        ca_pem: None,
        server: "https://10.0.0.1:6443".into(),
        fingerprint: String::new(),
        minor: Arc::default(),
        gate: Default::default(),
    }
}

fn side(recording: &str) -> LinuxSide {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures").join(recording);
    read(&serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap())
}

fn cluster() -> Cluster {
    object(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": {"controlPlaneEndpoint": {"host": "api.example.com", "port": 6443}}}))
}

fn windows_cluster(name: &str) -> WindowsCluster {
    object(
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster", "metadata": {"name": name, "namespace": "lab"}, "spec": {}}),
    )
}

async fn brought(server: &Arc<Mutex<Server>>, recording: &str, name: &str) -> Result<Brought, WorkloadError> {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    bring(&shared.windows_cluster(), &workload(server), &side(recording), &windows_cluster(name), &cluster()).await
}

const RECORDING: &str = "flannel-vxlan-4096.yaml";

#[tokio::test]
async fn it_is_applied_once_for_one_owner_and_goes_as_a_whole() {
    let server = Arc::new(Mutex::new(Server::default()));
    let first = brought(&server, RECORDING, "c1").await.unwrap();
    assert_eq!(
        (first.condition.status, first.condition.reason),
        (Some(false), Reason::PartNotReady),
        "nothing is known of what was applied just now"
    );
    let writes = |server: &Arc<Mutex<Server>>| server.lock().unwrap().asked.iter().filter(|line| !line.starts_with("GET")).count();
    assert_eq!(writes(&server), 10);
    let set = "/apis/apps/v1/namespaces/capw-windows/daemonsets/flannel";
    let endpoint = "/spec/template/spec/containers/0/env/2/value";
    assert_eq!(server.lock().unwrap().objects[set].pointer(endpoint), Some(&json!("https://api.example.com:6443")));

    let again = brought(&server, RECORDING, "c1").await.unwrap();
    assert_eq!((again.condition.reason, again.parts.len()), (Reason::PartsReady, 2));
    assert_eq!(writes(&server), 10, "nothing is written when nothing has changed");

    let other = brought(&server, RECORDING, "c2").await.unwrap();
    assert_eq!(other.condition.reason, Reason::NameTaken);
    take_away(&workload(&server), &windows_cluster("c2")).await.unwrap();
    assert_eq!(writes(&server), 10, "what another asks for is not touched");

    take_away(&workload(&server), &windows_cluster("c1")).await.unwrap();
    // What is in the namespace goes with it.
    let left: Vec<String> = server.lock().unwrap().objects.keys().filter(|path| !path.contains("/namespaces/capw-windows/")).cloned().collect();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn what_is_in_the_way_is_said_and_nothing_is_applied() {
    for recording in ["flannel-manifest.yaml", "flannel-host-gw.yaml", "calico-operator-vxlan.yaml", "cilium.yaml"] {
        let server = Arc::new(Mutex::new(Server::default()));
        let said = brought(&server, recording, "c1").await.unwrap();
        assert_eq!((said.condition.reason, server.lock().unwrap().asked.len()), (Reason::NotBrought, 0), "{recording}");
    }
}

#[tokio::test]
async fn each_request_that_is_refused_is_named() {
    let server = Arc::new(Mutex::new(Server::default()));
    brought(&server, RECORDING, "c1").await.unwrap();
    let asked = server.lock().unwrap().asked.clone();
    assert!(asked.len() > 20, "{asked:?}");
    for line in asked {
        let server = Arc::new(Mutex::new(Server { refused: Some(line.clone()), ..Server::default() }));
        let Err(WorkloadError::Forbidden { what }) = brought(&server, RECORDING, "c1").await.map(drop) else { panic!("{line}") };
        let name = line.rsplit('/').next().unwrap();
        assert!(what.contains(name), "{line}: {what}");
    }
}
