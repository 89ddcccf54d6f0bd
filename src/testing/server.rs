//! A workload cluster that stores applied objects, and fails the requests that a test selects.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bootstrap::sample::CA;
use crate::kube_api::mock::{Exchange, step};
use crate::kube_api::workload::Workload;
use crate::kube_api::workloads::Connect;
use crate::request_info::RequestInfo;

#[derive(Default)]
pub struct Server {
    pub objects: BTreeMap<String, Value>,
    /// The observed Nodes and pods.
    pub others: Vec<Value>,
    pub asked: Vec<String>,
    /// A request that is always refused.
    pub refused: Option<String>,
    /// An API group that is not served.
    pub without: Option<&'static str>,
    /// The field manager that has changed the image of an object, by path.
    pub held: BTreeMap<String, &'static str>,
    /// The number of a request, from 0, and how it fails.
    pub failing: Option<(usize, Fault)>,
    /// The number of merge patches that succeeded.
    pub writes: usize,
    /// The interval at which kubelets write their Nodes. If set, every kind is served, and can be listed and watched.
    pub beats: Option<Duration>,
    /// The number of these writes.
    pub beaten: u64,
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Refused,
    /// Another client has written the object since it was read.
    Conflict,
    /// The server requests to wait for [`PATIENCE`].
    Busy,
    /// A proxy in front of the server gives up, before the request is carried out or after.
    GivenUp {
        is_done: bool,
    },
    /// There is no answer at all, though the request may be carried out.
    Unanswered {
        is_done: bool,
    },
}

/// The delay that a busy server requests: longer than CAPW waits without it.
pub const PATIENCE: Duration = Duration::from_secs(60);

impl Fault {
    const ALL: [Self; 7] = [
        Self::Refused,
        Self::Conflict,
        Self::Busy,
        Self::GivenUp { is_done: false },
        Self::GivenUp { is_done: true },
        Self::Unanswered { is_done: false },
        Self::Unanswered { is_done: true },
    ];

    /// Returns the number of each request with each possible fault: reads neither conflict nor change anything.
    pub fn of(requests: &[String]) -> Vec<(usize, Self)> {
        let is_possible = |nth: usize, fault: Self| !requests[nth].starts_with("GET") || !(fault == Self::Conflict || fault.is_done());
        let all = (0..requests.len()).flat_map(|nth| Self::ALL.map(|fault| (nth, fault)));
        all.filter(|(nth, fault)| is_possible(*nth, *fault)).collect()
    }

    /// Whether the request is carried out nevertheless.
    pub const fn is_done(self) -> bool {
        matches!(self, Self::GivenUp { is_done: true } | Self::Unanswered { is_done: true })
    }

    /// Returns the answer to the client, if it gets one.
    fn answer(self) -> Option<(u16, Value)> {
        Some(match self {
            Self::Refused => status(403, "Forbidden"),
            Self::Conflict => status(409, "Conflict"),
            Self::Busy => {
                let (code, mut busy) = status(429, "TooManyRequests");
                busy["details"] = json!({"retryAfterSeconds": PATIENCE.as_secs()});
                (code, busy)
            }
            Self::GivenUp { .. } => status(504, "Timeout"),
            Self::Unanswered { .. } => return None,
        })
    }
}

pub fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code}))
}

/// Returns the answer that kubectl gets from an API server of Kubernetes 1.36.
fn conflict(manager: &str) -> (u16, Value) {
    let field = ".spec.template.spec.containers[name=\"flannel\"].image";
    let causes = json!([{"reason": "FieldManagerConflict", "message": format!("conflict with \"{manager}\" using apps/v1"), "field": field}]);
    let (code, mut status) = status(409, "Conflict");
    status["details"] = json!({"causes": causes});
    (code, status)
}

impl Server {
    /// Creates a cluster with an identity, and with these objects by path.
    pub fn holding<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let kube_system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "k"}});
        let objects = std::iter::once(("/api/v1/namespaces/kube-system", kube_system)).chain(objects);
        Self { objects: objects.map(|(path, object)| (path.to_owned(), object)).collect(), ..Self::default() }
    }

    /// Returns the objects of a kind, if the path is the path of a list.
    fn list(&self, path: &str, query: &str) -> Option<Value> {
        let plural = RequestInfo::parse(&Method::GET, path, query).filter(|info| info.verb == "list")?.resource;
        let (root, selector) = (path.strip_suffix(plural)?, "fieldSelector=metadata.name%3D");
        let named = query.split('&').find_map(|part| part.strip_prefix(selector));
        let is_of = |key: &str| {
            let mut parts = key.rsplit('/');
            let name = parts.next();
            key.starts_with(root) && parts.next() == Some(plural) && (named.is_none() || named == name)
        };
        let items: Vec<&Value> = self.objects.iter().filter(|(key, _)| is_of(key)).map(|(_, object)| object).collect();
        Some(page(&items, query))
    }

    /// Returns the events of a watch of Nodes, which report only heartbeats.
    fn beat(&mut self) -> String {
        self.beaten += 1;
        let version = (self.beaten + 1).to_string();
        let nodes = self.others.iter_mut().filter(|object| object["kind"] == "Node");
        let events = nodes.map(|node| {
            node["metadata"]["resourceVersion"] = json!(version);
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": version}]);
            format!("{{\"type\":\"MODIFIED\",\"object\":{node}}}\n")
        });
        events.collect()
    }

    /// Returns the answer; `None` if the object does not exist.
    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> Option<(u16, Value)> {
        let line = format!("{method} {path}");
        self.asked.push(line.clone());
        if self.without.is_some_and(|group| path.starts_with(&format!("/apis/{group}/"))) {
            return Some((404, json!("404 page not found")));
        }
        if self.refused.as_ref() == Some(&line) {
            return Some(status(403, "Forbidden"));
        }
        if let Some((_, fault)) = self.failing.filter(|(nth, _)| nth + 1 == self.asked.len()) {
            if fault.is_done() {
                self.carry_out(method, path, query, body);
            }
            return fault.answer();
        }
        self.carry_out(method, path, query, body).or_else(|| Some(status(404, "NotFound")))
    }

    fn carry_out(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> Option<(u16, Value)> {
        if let Some(name) = path.strip_prefix("/api/v1/nodes/") {
            let node = self.others.iter_mut().find(|object| object["kind"] == "Node" && object["metadata"]["name"] == name)?;
            if *method == Method::PATCH {
                json_patch::merge(node, &serde_json::from_slice(body).unwrap());
            }
            return Some((200, node.clone()));
        }
        if path == "/api/v1/nodes" {
            let nodes: Vec<&Value> = self.others.iter().filter(|object| object["kind"] == "Node").collect();
            return Some((200, page(&nodes, query)));
        }
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match *method {
            Method::GET if path == "/api/v1/pods" => {
                let pods: Vec<&Value> = self.others.iter().filter(|object| object["kind"] == "Pod").collect();
                Some((200, page(&pods, query)))
            }
            // A merge patch: an applied object has a kind.
            Method::PATCH if sent()["kind"].is_null() => {
                let live = self.objects.get_mut(path)?;
                let version = sent()["metadata"]["resourceVersion"].clone();
                if !version.is_null() && version != live["metadata"]["resourceVersion"] {
                    return Some(status(409, "Conflict"));
                }
                json_patch::merge(live, &sent());
                self.writes += 1;
                live["metadata"]["resourceVersion"] = json!(format!("w{}", self.writes));
                Some((200, live.clone()))
            }
            Method::PATCH if !query.contains("force=true") && self.held.contains_key(path) => {
                Some(conflict(self.held.get(path).copied().unwrap_or_default()))
            }
            // As in every API server, the handler of a RuntimeClass cannot change.
            Method::PATCH if self.objects.get(path).is_some_and(|live| live["handler"] != sent()["handler"]) => Some(status(422, "Invalid")),
            Method::PATCH => {
                self.held.remove(path);
                let mut object = sent();
                object["metadata"]["uid"] = json!(path);
                if path.contains("/services/") {
                    object["spec"]["ports"][0]["nodePort"] = json!(30123);
                }
                self.objects.insert(path.to_owned(), object.clone());
                Some((200, object))
            }
            Method::DELETE => self.objects.remove(path).map(|object| (200, object)),
            Method::GET if self.beats.is_some() && !self.objects.contains_key(path) => Some((200, self.list(path, query)?)),
            _ => self.objects.get(path).map(|object| (200, object.clone())),
        }
    }
}

/// Returns as many items as requested, and where the next ones begin.
fn page(items: &[&Value], query: &str) -> Value {
    let number = |key: &str| query.split('&').find_map(|part| part.strip_prefix(key)?.parse::<usize>().ok());
    let rest = &items[number("continue=").unwrap_or_default()..];
    let (now, later) = rest.split_at(number("limit=").unwrap_or(rest.len()).min(rest.len()));
    let next = if later.is_empty() { String::new() } else { (items.len() - later.len()).to_string() };
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1", "continue": next}, "items": now})
}

/// Waits for the events of a watch, which ends with them and restarts. Only Nodes change.
async fn watch(server: &Mutex<Server>, path: &str) -> String {
    let beats = server.lock().beats.filter(|_| path == "/api/v1/nodes");
    match beats {
        Some(beats) => sleep(beats).await,
        None => pending().await,
    }
    server.lock().beat()
}

/// Creates a client of that server.
pub fn client(server: &Arc<Mutex<Server>>) -> Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
            if query.contains("watch=true") {
                let answer = watch(&server, path).await;
                return Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes())));
            }
            let body = body.collect_bytes().await.unwrap();
            let answer = server.lock().answer(&parts.method, path, query, &body);
            let Some((code, answer)) = answer else { return pending().await };
            Ok(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    Client::new(service, "default")
}

pub fn workload(server: &Arc<Mutex<Server>>) -> Workload {
    Workload { server: "https://10.0.0.1:6443".into(), ..Workload::of(client(server)) }
}

/// Connects every kubeconfig to that server.
pub fn connect(server: &Arc<Mutex<Server>>) -> Connect {
    let server = server.clone();
    Arc::new(move |_: Config| Ok(client(&server)))
}

/// Expects the request for the kubeconfig of the Cluster `lab/c1`, and answers with one.
pub fn kubeconfig() -> Exchange {
    read_of_kubeconfig(kubeconfig_of("10.0.0.1"))
}

/// As [`kubeconfig`], with the CA of the cluster, which the data of nodes holds.
pub fn kubeconfig_with_ca() -> Exchange {
    read_of_kubeconfig(secret_of(json!({"server": "https://10.0.0.1:6443", "certificate-authority-data": STANDARD.encode(CA)})))
}

fn read_of_kubeconfig(secret: Value) -> Exchange {
    step("GET /api/v1/namespaces/lab/secrets/c1-kubeconfig", secret)
}

/// Returns a Secret with the kubeconfig of the cluster at that host.
pub fn kubeconfig_of(host: &str) -> Value {
    secret_of(json!({"server": format!("https://{host}:6443")}))
}

fn secret_of(cluster: Value) -> Value {
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "t"}}]});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": STANDARD.encode(kubeconfig.to_string())}})
}
