//! An API server in memory: objects, versions, finalizers, owners, watches; and the faults of a plan.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::pending;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::Layer;

use super::plan::{Fault, Plan};
use crate::kube_api::limits::Limits;
use crate::request_info::RequestInfo;

/// Group and version with resource, namespace and name.
type Key = (String, String, String);

#[derive(Default)]
struct Store {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// The changes of each object, for watches that start late.
    history: Vec<(u64, Key, &'static str, Value)>,
    watches: Vec<(String, UnboundedSender<Bytes>)>,
    /// Requests so far, except watches.
    requests: Vec<String>,
    /// The requests that changed nothing.
    without_effect: Vec<String>,
    plan: Plan,
    crashed: bool,
}

/// An API server in memory. Clones are the same server.
#[derive(Clone)]
pub struct Api {
    store: Arc<Mutex<Store>>,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Api {
    pub fn new(plan: &Plan, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self { store: Arc::new(Mutex::new(Store { plan: plan.clone(), ..Store::default() })), now }
    }

    /// A client for the controllers' requests to that cluster. The server is the same for each cluster, and the requests name the intended one.
    pub fn client(&self, cluster: &'static str) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.serve(cluster, request).await }
        });
        // Built as the operator builds its client.
        Client::new(Limits::of_management().layer(service), "default")
    }

    /// Applies an object, as a user does.
    pub fn put(&self, resource: &str, object: Value) {
        let name = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (resource.to_owned(), name("namespace"), name("name"));
        self.store.lock().create(key, object, (self.now)());
    }

    pub fn merge(&self, resource: &str, namespace: &str, name: &str, patch: &Value) {
        let mut store = self.store.lock();
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        if let Some(mut object) = store.objects.get(&key).cloned() {
            json_patch::merge(&mut object, patch);
            store.store(&key, object);
        }
    }

    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.store.lock().delete(&(resource.to_owned(), namespace.to_owned(), name.to_owned()), (self.now)());
    }

    pub fn all(&self, resource: &str) -> Vec<Value> {
        self.store.lock().objects.iter().filter(|(key, _)| key.0.ends_with(&format!("/{resource}"))).map(|(_, object)| object.clone()).collect()
    }

    /// Takes the requests except watches, in their order, and the requests that changed nothing. Both lists start empty again.
    pub fn take_requests(&self) -> (Vec<String>, Vec<String>) {
        let mut store = self.store.lock();
        (std::mem::take(&mut store.requests), std::mem::take(&mut store.without_effect))
    }

    /// Whether the process must crash now. Each crash is returned once.
    pub fn take_crash(&self) -> bool {
        let mut store = self.store.lock();
        let crashed = std::mem::take(&mut store.crashed);
        if crashed {
            store.watches.clear();
        }
        crashed
    }

    async fn serve(&self, cluster: &str, request: Request<Body>) -> Result<Answer, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or(Value::Null);
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
        if let Some(info) = RequestInfo::parse(&parts.method, &path, &query).filter(|info| info.verb == "watch") {
            return Ok(self.watch(key(&info).0, &query));
        }
        let request = format!("{} {path} {cluster}", parts.method);
        let fault = {
            let mut store = self.store.lock();
            let fault = store.plan.fault(&request, &store.requests);
            store.requests.push(request.clone());
            fault
        };
        let lost = |what: &str| Err(std::io::Error::other(what.to_owned()));
        match fault {
            Some(Fault::RequestLost) => return lost("the request was lost"),
            Some(Fault::InternalError) => return Ok(refusal(500, "InternalError")),
            Some(Fault::Unavailable) => return Ok(refusal(503, "ServiceUnavailable")),
            Some(Fault::Throttled) => return Ok(refusal(429, "TooManyRequests")),
            Some(Fault::Conflict) if parts.method != Method::GET => return Ok(refusal(409, "Conflict")),
            Some(Fault::NoAnswer) => pending().await,
            Some(Fault::CrashBefore) => {
                self.store.lock().crashed = true;
                pending().await
            }
            _ => {}
        }
        let answer = self.store.lock().counted(request, |store| store.answer(&parts.method, &path, &query, body, (self.now)()));
        match fault {
            Some(Fault::ReplyLost) => lost("the reply was lost"),
            Some(Fault::TimeoutAfterEffect) => Ok(refusal(504, "Timeout")),
            Some(Fault::CrashAfter) => {
                self.store.lock().crashed = true;
                pending().await
            }
            _ => Ok(answer.map_or_else(|(code, reason)| refusal(code, reason), |object| response(200, object))),
        }
    }

    fn watch(&self, resource: String, query: &str) -> Answer {
        let mut store = self.store.lock();
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).and_then(|v| v.parse().ok()).unwrap_or(0);
        let (sender, receiver): (_, UnboundedReceiver<Bytes>) = unbounded();
        for (version, key, kind, object) in &store.history {
            if *version > from && key.0 == resource {
                let _ = sender.unbounded_send(event(kind, object));
            }
        }
        let late = store.plan.late(&resource);
        store.watches.push((resource, sender));
        let body = StreamBody::new(receiver.then(move |bytes| async move {
            if !late.is_zero() {
                tokio::time::sleep(late).await;
            }
            Ok::<_, Infallible>(Frame::data(bytes))
        }));
        Response::new(body.boxed_unsync())
    }
}

/// Returns the place of an object in the store.
fn key(info: &RequestInfo<'_>) -> Key {
    let group = if info.group.is_empty() { "api".to_owned() } else { format!("apis/{}", info.group) };
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    (format!("{group}/{}/{}", info.version, info.resource), text(info.namespace), text(info.name))
}

fn event(kind: &str, object: &Value) -> Bytes {
    // The type comes first, as the API server writes it.
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

fn response(code: u16, body: Value) -> Answer {
    Response::builder().status(code).body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).unwrap()
}

fn refusal(code: u16, reason: &str) -> Answer {
    let details = json!({"retryAfterSeconds": 1});
    response(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code, "details": details}),
    )
}

type Outcome = Result<Value, (u16, &'static str)>;

impl Store {
    /// Records the request if it is an accepted write that changes nothing. Events are not recorded.
    fn counted(&mut self, request: String, answer: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        let before = self.version;
        let answer = answer(self);
        let is_write = !request.starts_with("GET ") && !request.contains("/events");
        if is_write && answer.is_ok() && self.version == before {
            self.without_effect.push(request);
        }
        answer
    }

    fn answer(&mut self, method: &Method, path: &str, query: &str, body: Value, now: Timestamp) -> Outcome {
        if path == "/version" {
            return Ok(json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "",
                "goVersion": "", "compiler": "", "platform": ""}));
        }
        if path.starts_with("/apis/cluster.x-k8s.io/") {
            return Err((404, "NotFound"));
        }
        let Some(info) = RequestInfo::parse(method, path, query) else {
            // Discovery of a group.
            let all = ["windowsmachines", "windowsnodepools", "windowshypervisors", "windowsbootstrapconfigs", "windowsbootstrapconfigtemplates"];
            let resources: Vec<Value> =
                all.iter().map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "K", "verbs": []})).collect();
            return Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "x/v1", "resources": resources}));
        };
        let (key, sub) = (key(&info), info.subresource.unwrap_or_default());
        match *method {
            Method::GET if key.2.is_empty() => Ok(self.list(&key, query)),
            Method::GET => self.objects.get(&key).cloned().ok_or((404, "NotFound")),
            Method::POST if info.resource == "events" => Ok(body),
            Method::POST => {
                let key = (key.0, key.1, body["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                if self.objects.contains_key(&key) { Err((409, "AlreadyExists")) } else { Ok(self.create(key, body, now)) }
            }
            Method::PATCH if query.contains("fieldManager") && sub.is_empty() && !self.objects.contains_key(&key) && body["kind"] != Value::Null => {
                Ok(self.create(key, body, now))
            }
            Method::PATCH | Method::PUT => self.change(&key, sub, method, body),
            Method::DELETE => {
                let had = self.objects.get(&key).cloned().ok_or((404, "NotFound"))?;
                let wanted = &body["preconditions"];
                let differs = |wanted: &Value, had: &Value| !wanted.is_null() && wanted != had;
                if differs(&wanted["uid"], &had["metadata"]["uid"]) || differs(&wanted["resourceVersion"], &had["metadata"]["resourceVersion"]) {
                    return Err((409, "Conflict"));
                }
                self.delete(&key, now);
                Ok(had)
            }
            _ => Err((405, "MethodNotAllowed")),
        }
    }

    fn list(&self, key: &Key, query: &str) -> Value {
        let labels = query.split('&').find_map(|part| part.strip_prefix("labelSelector=")).map(|text| text.replace("%3D", "=").replace("%2F", "/"));
        let has = |object: &Value| {
            let wanted = labels.as_deref().unwrap_or_default().split("%2C").filter_map(|one| one.split_once('='));
            wanted.into_iter().all(|(label, value)| object["metadata"]["labels"][label] == value)
        };
        let is_here = |other: &&Key| other.0 == key.0 && (key.1.is_empty() || other.1 == key.1);
        let items: Vec<&Value> = self.objects.iter().filter(|(other, object)| is_here(other) && has(object)).map(|(_, object)| object).collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn change(&mut self, key: &Key, sub: &str, method: &Method, body: Value) -> Outcome {
        let had = self.objects.get(key).cloned().ok_or((404, "NotFound"))?;
        let differs = |field: &str| !body["metadata"][field].is_null() && body["metadata"][field] != had["metadata"][field];
        if differs("uid") || differs("resourceVersion") {
            return Err((409, "Conflict"));
        }
        let mut next = had.clone();
        if sub == "status" || sub == "approval" {
            next["status"] = body["status"].clone();
        } else if method == Method::PUT || body["kind"] != Value::Null {
            next = body;
            next["status"] = had["status"].clone();
            next["metadata"]["uid"] = had["metadata"]["uid"].clone();
            next["metadata"]["creationTimestamp"] = had["metadata"]["creationTimestamp"].clone();
        } else {
            json_patch::merge(&mut next, &body);
        }
        Ok(self.store(key, next))
    }

    fn create(&mut self, key: Key, mut object: Value, now: Timestamp) -> Value {
        // The UID depends on the request, so that a plan is reproducible.
        object["metadata"]["uid"] = json!(format!("uid-{}-{}", key.2, self.version + 1));
        object["metadata"]["creationTimestamp"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        object["metadata"]["generation"] = json!(1);
        self.write(&key, object, "ADDED")
    }

    fn store(&mut self, key: &Key, mut next: Value) -> Value {
        let had = self.objects.get(key).cloned().unwrap_or_default();
        next["metadata"]["resourceVersion"] = had["metadata"]["resourceVersion"].clone();
        if had == next {
            return next;
        }
        if had["spec"] != next["spec"] {
            next["metadata"]["generation"] = json!(had["metadata"]["generation"].as_u64().unwrap_or(1) + 1);
        }
        if next["metadata"]["deletionTimestamp"].is_string() && next["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            self.remove(key, next.clone());
            return next;
        }
        self.write(key, next, "MODIFIED")
    }

    fn write(&mut self, key: &Key, mut object: Value, kind: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.tell(key, kind, object.clone());
        object
    }

    fn delete(&mut self, key: &Key, now: Timestamp) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        if object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            self.remove(key, object);
        } else if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            self.write(key, object, "MODIFIED");
        }
        self.collect(now);
    }

    /// Runs the garbage collector: deletes the objects that have lost their last owner.
    fn collect(&mut self, now: Timestamp) {
        let uids: Vec<Value> = self.objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
        let is_left = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(|owner| !uids.contains(&owner["uid"])))
        };
        let left: Vec<Key> = self.objects.iter().filter(|(_, object)| is_left(object)).map(|(key, _)| key.clone()).collect();
        for key in left {
            if self.objects.get(&key).is_some_and(|object| object["metadata"]["deletionTimestamp"].is_null()) {
                self.delete(&key, now);
            }
        }
    }

    fn remove(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.remove(key);
        self.tell(key, "DELETED", object);
    }

    fn tell(&mut self, key: &Key, kind: &'static str, object: Value) {
        self.watches.retain(|(resource, sender)| *resource != key.0 || sender.unbounded_send(event(kind, &object)).is_ok());
        self.history.push((self.version, key.clone(), kind, object));
    }
}

impl Api {
    /// Runs the garbage collector.
    pub fn collect(&self) {
        self.store.lock().collect((self.now)());
    }
}
