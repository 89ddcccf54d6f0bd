//! Reads a recorded cluster; also with refused writes.

use std::convert::Infallible;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::engine::caches::Caches;
use crate::kinds::windows_cluster::linux_side::*;
use crate::testing::server::{self, Fault, Server};
use crate::testing::{read as read_as, shared};

/// Calico by its operator: kinds of several groups, and one of its two kinds for addresses is not served.
const RECORDING: &str = "src/components/fixtures/calico-operator-windows.yaml";

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The path to list objects of this kind; for a ConfigMap, the path of the object.
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

/// A cluster with the objects of the recording, which refuses one path; and the requested paths.
fn cluster(refused: Option<String>) -> (Workload, Arc<Mutex<Vec<String>>>) {
    cluster_with(Arc::new(Mutex::new(refused)))
}

/// The same cluster, with a refusal that can change: a path to read, or `watch PATH`.
fn cluster_with(refused: Arc<Mutex<Option<String>>>) -> (Workload, Arc<Mutex<Vec<String>>>) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDING)).unwrap();
    let objects: Arc<Vec<Value>> = Arc::new(serde_saphyr::from_multiple(&text).unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (asked, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
        // Watches stay silent: nothing changes.
        let is_watch = query.contains("watch=true");
        noted.lock().extend((!is_watch).then(|| asked.clone()));
        // The watch of one object lists the object by its name.
        let named = query.split_once("metadata.name%3D").map(|(_, rest)| rest.split('&').next().unwrap().to_owned());
        let of = named.as_ref().map_or_else(|| asked.clone(), |name| format!("{asked}/{name}"));
        let found: Vec<Value> = objects.iter().filter(|object| path(object) == of).cloned().collect();
        let status = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code});
            (code, status.to_string())
        };
        let request = if is_watch { format!("watch {asked}") } else { asked.clone() };
        let refused = refused.lock().clone();
        let (code, body) = match found.as_slice() {
            _ if asked == REVIEWS => (201, json!({"spec": {}, "status": {"allowed": refused.is_none()}}).to_string()),
            _ if refused == Some(request) => status(403, "Forbidden"),
            [] if of.contains("/configmaps/") && named.is_none() => status(404, "NotFound"),
            // The kind is not served.
            [] if named.is_none() => (404, "404 page not found".to_owned()),
            [map] if map["kind"] == "ConfigMap" && named.is_none() => (200, map.to_string()),
            items => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}).to_string()),
        };
        async move {
            if is_watch && code == 200 {
                pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap())
        }
    });
    let workload = Workload::of(Client::new(service, "default"));
    (workload, asked)
}

/// The objects that a pass reads for a WindowsCluster with all components.
async fn observed(clusters: &WorkloadClusters, workload: &Workload) -> Result<Observed, WorkloadError> {
    observed_with("Auto", clusters, workload).await
}

async fn observed_with(mode: &str, clusters: &WorkloadClusters, workload: &Workload) -> Result<Observed, WorkloadError> {
    let asked = json!({"mode": mode, "policies": {"validation": "Off", "runtimeClasses": "Off"}});
    let reader = Reader { clusters, cluster: &ClusterRef::cluster_api("lab", "c1"), workload };
    observe(&reader, &windows_cluster(), &read_as(asked)).await
}

fn windows_cluster() -> WindowsCluster {
    read_as(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}}))
}

#[tokio::test]
async fn each_read_that_is_refused_is_named() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let clusters = shared.windows_cluster().clusters;
    let (workload, asked) = cluster(None);
    let Observed { side, watched, .. } = observed(&clusters, &workload).await.unwrap();
    assert_eq!(judge(&side), []);
    let kinds: Vec<&str> = watched.iter().map(|watched| watched.listing().kind).collect();
    let of_calico = ["Installation", "TigeraStatus", "IPPool", "FelixConfiguration", "IPAMConfiguration"];
    let all = [&["Node", "DaemonSet", "Service", "ServiceCIDR", "ConfigMap", "Namespace"][..], &of_calico].concat();
    assert!(all.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    let asked = asked.lock().clone();
    assert!(asked.len() > all.len(), "{asked:?}");
    assert_eq!(asked.iter().filter(|path| *path == "/api/v1/pods").count(), 2, "those of CAPW, and those of Calico");
    for path in asked {
        let refusing = cluster(Some(path.clone())).0;
        let Err(WorkloadError::Forbidden { what }) = observed(&clusters, &refusing).await.map(drop) else { panic!("{path}") };
        let plural = if path.contains("/configmaps/") { "configmaps" } else { path.rsplit('/').next().unwrap() };
        assert!(what.contains(plural), "{path}: {what}");
    }
}

/// With `mode: Report`, a missing right that only `Auto` needs is reported, and so is everything else.
#[tokio::test]
async fn a_right_that_only_auto_needs_hides_nothing_from_a_report() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let clusters = shared.windows_cluster().clusters;
    let (workload, asked) = cluster(None);
    let Observed { side, unknown, .. } = observed_with("Report", &clusters, &workload).await.unwrap();
    assert!(unknown.is_none());
    let all = asked.lock().clone();
    observed(&clusters, &workload).await.unwrap();
    assert_eq!(asked.lock()[all.len()..], all, "what Auto reads");
    let mut told = Vec::new();
    for path in all {
        let kind = path.rsplit('/').next().unwrap();
        match observed_with("Report", &clusters, &cluster(Some(path.clone())).0).await {
            Ok(seen) => {
                let said = unplanned(&seen.unknown.unwrap());
                assert!(seen.side == side && said.starts_with("WorkloadClusterForbidden: ") && said.contains(kind), "{path}: {said}");
                told.push(kind.to_owned());
            }
            Err(error) => assert!(matches!(error, WorkloadError::Forbidden { .. }), "{path}: {error}"),
        }
    }
    told.dedup();
    assert_eq!(told, ["namespaces", "serviceaccounts", "clusterroles", "clusterrolebindings", "configmaps", "pods"]);
}

#[tokio::test(start_paused = true)]
async fn what_watches_show_is_read_without_a_request() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let (clusters, name) = (shared.windows_cluster().clusters, ClusterRef::cluster_api("lab", "c1"));
    let (workload, asked) = cluster(None);
    let first = observed(&clusters, &workload).await.unwrap();
    watch(&clusters, &workload, &first.watched);
    let is_shown = |watched: &Watched| clusters.linux_sides().shown(&name, &workload, watched).unwrap().is_some();
    timeout(Duration::from_secs(60), async {
        while !first.watched.iter().all(is_shown) {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("each watch shows what there is");
    asked.lock().clear();
    let second = observed(&clusters, &workload).await.unwrap();
    assert_eq!((second.side, second.watched), (first.side, first.watched.clone()));
    assert_eq!(*asked.lock(), [""; 0]);

    // A kind that is no longer watched is read again.
    watch(&clusters, &workload, &[Watched::Kind(FIRST[0])]);
    observed(&clusters, &workload).await.unwrap();
    let asked = asked.lock().clone();
    assert_eq!((asked.len(), asked.contains(&"/api/v1/nodes".to_owned())), (first.watched.len() - 1, false), "{asked:?}");
    clusters.stop();
}

/// Starts watches, as after a pass that has read these.
fn watch(clusters: &WorkloadClusters, workload: &Workload, watched: &[Watched]) {
    let side = linux_sides::LinuxSide { object: ObjectRef::from_obj(&windows_cluster()), watched: watched.to_vec() };
    clusters.watch_linux_side(&ClusterRef::cluster_api("lab", "c1"), workload, &side);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_is_told_until_the_right_is_there() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let clusters = shared.windows_cluster().clusters;
    let refused = Arc::new(Mutex::new(Some("watch /api/v1/nodes".to_owned())));
    let (workload, asked) = cluster_with(refused.clone());
    let first = observed(&clusters, &workload).await.expect("all of it may be read");
    watch(&clusters, &workload, &first.watched);
    let becomes = async |is_told: bool| {
        let told = async || match observed(&clusters, &workload).await {
            Err(WorkloadError::Forbidden { what }) => what.contains("watch nodes"),
            seen => seen.map(|_| false).unwrap(),
        };
        let limit = timeout(Duration::from_secs(120), async {
            while told().await != is_told {
                sleep(Duration::from_millis(100)).await;
            }
        });
        limit.await.unwrap_or_else(|_| panic!("told: {is_told}"));
    };
    becomes(true).await;
    asked.lock().clear();
    sleep(Duration::from_secs(600)).await;
    becomes(true).await;
    let asked: Vec<String> = std::mem::take(&mut asked.lock());
    assert!(asked.iter().any(|path| path == REVIEWS) && !asked.iter().any(|path| path == "/api/v1/nodes"), "{asked:?}");

    *refused.lock() = None;
    becomes(false).await;
    clusters.stop();
}

#[test]
fn a_write_that_is_refused_is_told_unless_it_passes_by_itself() {
    let text = || "patch configmaps a/b: no".to_owned();
    for (error, expected) in [
        (WorkloadError::Forbidden { what: text() }, Some(Reason::WorkloadClusterForbidden)),
        (WorkloadError::TooLarge { endpoint: text(), what: text() }, Some(Reason::WorkloadClusterTooLarge)),
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

#[test]
fn what_failed_is_tried_again_soon_or_when_the_server_wants_it() {
    let (text, busy) = (String::new, |after| ApiError::Throttled { after: Duration::from_secs(after) });
    for (error, after) in [
        (WorkloadError::Api(ApiError::Conflict(text())), CONFLICT),
        (WorkloadError::Api(ApiError::Unreachable(text())), RECHECK_SOON),
        (WorkloadError::Forbidden { what: text() }, RECHECK_SOON),
        (WorkloadError::Api(busy(1)), RECHECK_SOON),
        (WorkloadError::Api(busy(60)), Duration::from_secs(60)),
        (WorkloadError::Management(busy(60)), Duration::from_secs(60)),
    ] {
        assert_eq!(again(&error), after, "{error}");
    }
}

/// The path of an object.
fn own_path(object: &Value) -> String {
    let (all, name) = (path(object), object["metadata"]["name"].as_str().unwrap());
    match (object["metadata"]["namespace"].as_str(), all.rsplit_once('/').unwrap()) {
        _ if object["kind"] == "ConfigMap" => all,
        (Some(namespace), (root, plural)) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
        (None, _) => format!("{all}/{name}"),
    }
}

/// A cluster with the objects of a recording, in which one request fails once.
fn recorded(recording: &str, failing: Option<(usize, Fault)>) -> Arc<Mutex<Server>> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures").join(recording)).unwrap();
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for object in &mut objects {
        (object["metadata"]["uid"], object["metadata"]["resourceVersion"]) = (json!("u"), json!("1"));
    }
    let objects = objects.into_iter().map(|object| (own_path(&object), object)).collect();
    Arc::new(Mutex::new(Server { objects, failing, ..Server::default() }))
}

/// Takes steps until there is nothing to write. Returns how many failed.
async fn changed(server: &Arc<Mutex<Server>>) -> usize {
    let (workload, mut failed) = (server::workload(server), 0);
    for _ in 0..MANY {
        let objects: Vec<Value> = server.lock().objects.values().cloned().collect();
        let side = read(&objects);
        let step = next_step(&objects, &side, &judge(&side));
        match step {
            Step::Write(_) => failed += usize::from(act(&workload, &step).await.is_err()),
            _ => return failed,
        }
    }
    panic!("after {MANY} steps: {:#?}", server.lock().asked)
}

/// More steps than any cluster needs.
const MANY: usize = 10;

/// No write is repeated, whatever happens to its answer.
#[tokio::test(start_paused = true)]
async fn whatever_request_fails_the_linux_side_is_changed_once() {
    for (recording, writes) in [("flannel-manifest.yaml", 2), ("calico-operator-installed.yaml", 4)] {
        let undisturbed = recorded(recording, None);
        assert_eq!(changed(&undisturbed).await, 0);
        let expected = undisturbed.lock().objects.clone();
        let asked = undisturbed.lock().asked.clone();
        assert_eq!(asked.len(), writes, "{asked:#?}");
        for (nth, fault) in Fault::of(&asked) {
            let (line, server) = (&asked[nth], recorded(recording, Some((nth, fault))));
            assert_eq!(changed(&server).await, 1, "{line}, {fault:?}");
            let server = server.lock();
            assert_eq!(server.asked.len(), writes + usize::from(!fault.is_done()), "{line}, {fault:?}");
            assert_eq!(server.objects, expected, "{line}, {fault:?}");
        }
    }
}
