//! A workload cluster that keeps what is applied, and refuses what it is told to.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::cluster::mock::{Exchange, step};
use crate::cluster::workload::{Connect, Workload};

#[derive(Default)]
pub struct Server {
    pub objects: BTreeMap<String, Value>,
    /// Nodes and pods, as they are observed.
    pub others: Vec<Value>,
    pub asked: Vec<String>,
    /// A request that is refused each time.
    pub refused: Option<String>,
    /// A group of kinds that are not there.
    pub without: Option<&'static str>,
    /// A request that fails once: with nothing done, or done and its answer lost.
    pub failing: Option<(String, bool)>,
}

pub fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code}))
}

impl Server {
    /// A cluster that says which one it is, with these objects by path.
    pub fn holding<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let kube_system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "k"}});
        let objects = std::iter::once(("/api/v1/namespaces/kube-system", kube_system)).chain(objects);
        Self { objects: objects.map(|(path, object)| (path.to_owned(), object)).collect(), ..Self::default() }
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let line = format!("{method} {path}");
        self.asked.push(line.clone());
        if self.without.is_some_and(|group| path.starts_with(&format!("/apis/{group}/"))) {
            return (404, json!("404 page not found"));
        }
        if self.refused.as_ref() == Some(&line) {
            return status(403, "Forbidden");
        }
        if let Some((_, is_done)) = self.failing.take_if(|(failing, _)| *failing == line) {
            if is_done {
                self.carry_out(method, path, body);
            }
            return status(504, "Timeout");
        }
        self.carry_out(method, path, body).unwrap_or_else(|| status(404, "NotFound"))
    }

    fn carry_out(&mut self, method: &Method, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        if let Some(name) = path.strip_prefix("/api/v1/nodes/") {
            let node = self.others.iter_mut().find(|object| object["kind"] == "Node" && object["metadata"]["name"] == name)?;
            if *method == Method::PATCH {
                json_patch::merge(node, &serde_json::from_slice(body).unwrap());
            }
            return Some((200, node.clone()));
        }
        if path == "/api/v1/nodes" {
            let nodes: Vec<&Value> = self.others.iter().filter(|object| object["kind"] == "Node").collect();
            return Some((200, json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": nodes})));
        }
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match *method {
            Method::GET if path == "/api/v1/pods" => {
                let pods: Vec<&Value> = self.others.iter().filter(|object| object["kind"] == "Pod").collect();
                Some((200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})))
            }
            // As every API server.
            Method::PATCH if self.objects.get(path).is_some_and(|live| live["handler"] != sent()["handler"]) => Some(status(422, "Invalid")),
            Method::PATCH => {
                let mut object = sent();
                object["metadata"]["uid"] = json!(path);
                if path.contains("/services/") {
                    object["spec"]["ports"][0]["nodePort"] = json!(30123);
                }
                self.objects.insert(path.to_owned(), object.clone());
                Some((200, object))
            }
            Method::DELETE => self.objects.remove(path).map(|object| (200, object)),
            _ => self.objects.get(path).map(|object| (200, object.clone())),
        }
    }
}

/// A client of that server.
pub fn client(server: &Arc<Mutex<Server>>) -> Client {
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
    Client::new(service, "default")
}

pub fn workload(server: &Arc<Mutex<Server>>) -> Workload {
    Workload { server: "https://10.0.0.1:6443".into(), ..Workload::of(client(server)) }
}

/// Whatever a kubeconfig says, it leads to that server.
pub fn connect(server: &Arc<Mutex<Server>>) -> Connect {
    let server = server.clone();
    Arc::new(move |_: Config| Ok(client(&server)))
}

/// The request for the kubeconfig of the Cluster `lab/c1`, and one as an answer.
pub fn kubeconfig() -> Exchange {
    use base64::Engine as _;
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}], "users": [{"name": "u", "user": {"token": "t"}}]});
    let value = base64::engine::general_purpose::STANDARD.encode(kubeconfig.to_string());
    step("GET /api/v1/namespaces/lab/secrets/c1-kubeconfig", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": value}}))
}
