//! Reads of a recorded cluster, and writes that are refused.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::*;

/// Calico by its operator: kinds of several groups, and one of its two kinds for addresses is not served.
const RECORDING: &str = "src/components/fixtures/calico-operator-windows.yaml";

/// The path of a list of objects of that kind; of a ConfigMap, that of the object.
fn path(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match text("/kind") {
        "ConfigMap" => format!("{root}/namespaces/{}/configmaps/{}", text("/metadata/namespace"), text("/metadata/name")),
        kind if kind.ends_with('s') => format!("{root}/{}es", kind.to_ascii_lowercase()),
        kind => format!("{root}/{}s", kind.to_ascii_lowercase()),
    }
}

/// A cluster with the objects of the recording, which refuses one path; and the paths that it was asked for.
fn cluster(refused: Option<String>) -> (Workload, Arc<Mutex<Vec<String>>>) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDING)).unwrap();
    let objects: Arc<Vec<Value>> = Arc::new(serde_saphyr::from_multiple(&text).unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = request.uri().path().to_owned();
        noted.lock().unwrap().push(asked.clone());
        let found: Vec<Value> = objects.iter().filter(|object| path(object) == asked).cloned().collect();
        let status = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code});
            (code, status.to_string())
        };
        let (code, body) = match found.as_slice() {
            _ if refused.as_ref() == Some(&asked) => status(403, "Forbidden"),
            [] if asked.contains("/configmaps/") => status(404, "NotFound"),
            // Of a kind that is not served.
            [] => (404, "404 page not found".to_owned()),
            [map] if map["kind"] == "ConfigMap" => (200, map.to_string()),
            items => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}).to_string()),
        };
        async move { Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap()) }
    });
    let workload = Workload {
        client: Client::new(service, "default"),
        ca_pem: None,
        server: String::new(),
        fingerprint: String::new(),
        minor: Arc::default(),
        gate: Default::default(),
    };
    (workload, asked)
}

#[tokio::test]
async fn what_was_read_is_watched_and_each_read_that_is_refused_is_named() {
    let (workload, asked) = cluster(None);
    let observed = observe(&workload, Some(&[])).await.unwrap();
    assert_eq!(judge(&observed.side), []);
    let kinds: Vec<&str> = observed.watched.iter().map(Watched::kind).collect();
    let of_calico = ["Installation", "TigeraStatus", "IPPool", "FelixConfiguration", "IPAMConfiguration"];
    let all = [&["Node", "DaemonSet", "Service", "ServiceCIDR", "ConfigMap"][..], &of_calico].concat();
    assert!(all.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert!(!kinds.contains(&"IPAMConfig"), "it is not served");
    let asked = asked.lock().unwrap().clone();
    assert!(asked.len() > all.len(), "{asked:?}");
    assert_eq!(asked.iter().filter(|path| *path == "/api/v1/pods").count(), 2, "those of CAPW, and those of Calico");
    for path in asked {
        let Err(WorkloadError::Forbidden { what }) = observe(&cluster(Some(path.clone())).0, Some(&[])).await.map(drop) else { panic!("{path}") };
        let plural = if path.contains("/configmaps/") { "configmaps" } else { path.rsplit('/').next().unwrap() };
        assert!(what.contains(plural), "{path}: {what}");
    }
}

#[test]
fn a_write_that_is_refused_is_told_unless_it_passes_by_itself() {
    let text = || "patch configmaps a/b: no".to_owned();
    for (error, expected) in [
        (WorkloadError::Forbidden { what: text() }, Some(Reason::WorkloadClusterForbidden)),
        (WorkloadError::Api(ApiError::Invalid(text())), Some(Reason::ChangeNeeded)),
        (WorkloadError::Api(ApiError::Conflict(text())), None),
        (WorkloadError::Api(ApiError::NotFound(text())), None),
        (WorkloadError::Api(ApiError::Unreachable(text())), None),
    ] {
        let said = refused(ConditionType::LinuxSideReady, Reason::ChangeNeeded, &error);
        assert_eq!(said.as_ref().map(|condition| condition.reason), expected, "{error}");
        assert!(said.is_none_or(|condition| condition.status == Some(false) && condition.message.contains("configmaps a/b")), "{error}");
    }
}
