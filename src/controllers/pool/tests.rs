//! The wiring of pools, against an API server that answers as the script says: whatever is lost or refused, no machine is made twice.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::pool::TEMPLATE_LABEL;
use crate::cluster::events::Events;
use crate::cluster::mock::{Script, Step, refuse, step};
use crate::cluster::workload::Workloads;
use crate::cluster::{ApiError, Cluster};
use crate::controllers::runtime::stores::{Cache, Stores};
use crate::controllers::runtime::watch::Watch;
use crate::controllers::Parts;
use crate::controllers::runtime::triggers;
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::lifecycle::pool::template::Template;

const MACHINES: &str = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines";
const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsnodepools/win/status";

fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A pool of one machine, owned by a MachinePool whose bootstrap data is somebody else's; adopted already.
fn pool() -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool",
        "metadata": {"name": "win", "namespace": "lab", "uid": "pool-uid", "resourceVersion": "7", "generation": 1, "finalizers": [FINALIZER],
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "mp", "uid": "mp-uid", "controller": true}]},
        "spec": {"template": {"machine": {"image": "w"}}}})
}

fn machine_pool() -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": {"name": "mp", "namespace": "lab", "uid": "mp-uid"},
        "spec": {"clusterName": "c1", "replicas": 1, "template": {"spec": {"clusterName": "c1", "version": "v1.36.3",
            "bootstrap": {"dataSecretName": "given"}, "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsNodePool", "name": "win"}}}}})
}

/// What the API server has after a create with this name.
fn machine(name: &str, owner: &str) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-{name}"), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "name": "win", "uid": owner}]},
        "spec": {"image": "w"}})
}

/// Caches that show nothing but the MachinePool and never change, a clock that goes on a second with each look, and the script.
fn stage(steps: Vec<Step>) -> (Context, Script) {
    stage_of(Stores::empty(), 1, steps)
}

/// With these caches, and a clock that goes on so many seconds with each look.
fn stage_of(stores: Stores, seconds: i64, steps: Vec<Step>) -> (Context, Script) {
    let (client, script) = Script::new(steps);
    let cluster = Cluster::new(client.clone());
    let clock = AtomicI64::new(1_767_225_600);
    let settings = DriverSettings {
        simulated_state: "nowhere".into(),
        simulated_guests: false,
        wine_programs: None,
        deadline: Duration::from_secs(1),
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
        hook: Arc::new(|_| ()),
    };
    let parts = Parts {
        cluster: cluster.clone(),
        workloads: Workloads::new(cluster),
        events: Events::new(client, "test", Arc::new(|_| ())),
        drivers: Arc::new(Drivers::new(settings)),
        clock: Arc::new(move || Timestamp::from_second(clock.fetch_add(seconds, Ordering::Relaxed)).unwrap()),
        new_token_secret: Arc::new(|| "0123456789abcdef".to_owned().into()),
        written: Default::default(),
        autoscaler: None,
    };
    let stores = Stores { machine_pools: Cache(Watch::holding(vec![read(machine_pool())])), ..stores };
    (Context::new(parts, stores, triggers::Calls::new().0), script)
}

async fn pass(ctx: &Context) -> Result<Outcome, ReconcileError> {
    reconcile(Arc::new(read(pool())), ctx.clone()).await
}

#[tokio::test]
async fn a_create_without_an_answer_is_tried_again_by_the_same_name() {
    let made = machine("win-x", "pool-uid");
    let (ctx, script) = stage(vec![
        refuse(&format!("POST {MACHINES}"), 504, "Timeout"),
        refuse(&format!("POST {MACHINES}"), 409, "AlreadyExists"),
        step(&format!("GET {MACHINES}/*"), made),
        step(STATUS, pool()),
        step(STATUS, pool()),
    ]);
    assert_eq!(pass(&ctx).await.unwrap_err().label(), "unreachable");
    pass(&ctx).await.expect("what the first try made is found");
    // The watch has not shown it yet.
    pass(&ctx).await.expect("nothing more is made");
    let seen = script.seen();
    assert_eq!(seen[0].body["metadata"]["name"], seen[1].body["metadata"]["name"]);
}

#[tokio::test]
async fn a_name_that_somebody_has_is_not_taken_and_another_one_is_tried() {
    let (ctx, script) = stage(vec![
        refuse(&format!("POST {MACHINES}"), 409, "AlreadyExists"),
        step(&format!("GET {MACHINES}/*"), machine("win-x", "another pool")),
        step(&format!("POST {MACHINES}"), machine("win-y", "pool-uid")),
        step(STATUS, pool()),
    ]);
    let error = pass(&ctx).await.unwrap_err();
    assert!(matches!(error, ReconcileError::Api(ApiError::AlreadyExists(_))), "{error}");
    pass(&ctx).await.expect("another name");
    let seen = script.seen();
    assert_ne!(seen[0].body["metadata"]["name"], seen[2].body["metadata"]["name"]);
}

#[tokio::test]
async fn a_conflict_at_the_report_makes_no_second_machine() {
    let (ctx, script) =
        stage(vec![step(&format!("POST {MACHINES}"), machine("win-x", "pool-uid")), refuse(STATUS, 409, "Conflict"), step(STATUS, pool())]);
    assert_eq!(pass(&ctx).await.unwrap_err().label(), "conflict");
    pass(&ctx).await.expect("only the report is left");
    let (machine, status) = (&script.seen()[0].body, &script.seen()[2].body["status"]);
    assert_eq!(machine["metadata"]["ownerReferences"][0]["uid"], "pool-uid");
    assert_eq!(status["replicas"], 1, "{status}");
}

#[tokio::test]
async fn a_machine_that_the_watch_never_shows_is_asked_for_and_not_made_twice() {
    let made = machine("win-x", "pool-uid");
    let (ctx, script) = stage_of(
        Stores::empty(),
        60,
        vec![
            step(&format!("POST {MACHINES}"), made.clone()),
            step(STATUS, pool()),
            step(&format!("GET {MACHINES}/win-x"), made),
            step(STATUS, pool()),
            refuse(&format!("GET {MACHINES}/win-x"), 404, "NotFound"),
            step(&format!("POST {MACHINES}"), machine("win-y", "pool-uid")),
            step(STATUS, pool()),
        ],
    );
    pass(&ctx).await.expect("it is made");
    pass(&ctx).await.expect("it is there");
    pass(&ctx).await.expect("it is gone, and another one is made");
    assert_eq!(script.seen().len(), 7);
}

#[tokio::test]
async fn nobody_is_removed_while_the_mark_of_the_autoscaler_is_not_seen_yet() {
    let template = Template { machine: read(json!({"image": "w"})), bootstrap: None, version: Some("v1.36.3".into()) };
    let own = |name: &str| {
        let mut own = machine(name, "pool-uid");
        own["metadata"]["labels"] = json!({TEMPLATE_LABEL: template.hash()});
        own
    };
    let of_core = |name: &str, annotations: Value| {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "namespace": "lab", "uid": format!("core-{name}"), "finalizers": ["machine.cluster.x-k8s.io"], "annotations": annotations},
            "spec": {"clusterName": "c1", "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": name}}})
    };
    let marked = json!({"cluster.x-k8s.io/delete-machine": "true"});
    let stores = |marks: Value| Stores {
        windows_machines: Cache(Watch::holding(vec![read(own("a")), read(own("b"))])),
        machines: Cache(Watch::holding(vec![read(of_core("a", json!({}))), read(of_core("b", marks))])),
        ..Stores::empty()
    };
    let list = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineList", "metadata": {},
        "items": [of_core("a", json!({})), of_core("b", marked.clone())]});
    const OF_CORE: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/lab/machines";
    let (ctx, script) = stage_of(stores(json!({})), 1, vec![step(&format!("GET {OF_CORE}"), list.clone())]);
    assert_eq!(pass(&ctx).await.unwrap_err().label(), "conflict", "the newest would have gone, which is not the one that is named");
    assert!(script.seen()[0].query.contains("pool-name"), "{:?}", script.seen());

    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let steps = vec![step(&format!("GET {OF_CORE}"), list), step(&format!("DELETE {OF_CORE}/b"), gone), step(STATUS, pool())];
    let (ctx, _script) = stage_of(stores(marked), 1, steps);
    pass(&ctx).await.expect("the one that is named goes");
}
