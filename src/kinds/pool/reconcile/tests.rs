//! The wiring of pools, against a scripted API server: whatever is lost or refused, no machine is created twice.

mod configs;
mod removals;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::capi::CLUSTER_NAME_LABEL;
use crate::api::cluster_ref::{JOINS_ANNOTATION, MADE_FOR_ANNOTATION};
use crate::api::name::VmUuid;
use crate::api::pool::{POOL_LABEL, TEMPLATE_LABEL};
use crate::domain::identity::HYPERVISOR_ANNOTATION;
use crate::engine::caches::Caches;
use crate::kinds::pool::decide::build;
use crate::kinds::pool::decide::situation::{Failure, Replace, State};
use crate::kinds::pool::decide::step::Why;
use crate::kinds::pool::decide::template::Template;
use crate::kinds::pool::reconcile::*;
use crate::kube_api::error::ApiError;
use crate::kube_api::mock::{Exchange, Script, refuse, step};
use crate::testing::server::{Server, connect, kubeconfig};
use crate::testing::{holding, holding_unreadable, list_nodes, reach, read, shared, shared_to, with_answers};

const MACHINES: &str = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines";
const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsnodepools/win/status";

/// A pool of one machine, owned by a MachinePool whose bootstrap data comes from another provider. The pool is already adopted.
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

/// The machine in the API server after a create with this name.
fn machine(name: &str, owner: &str) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-{name}"), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "name": "win", "uid": owner}]},
        "spec": {"image": "w"}})
}

/// The machine after core has adopted it.
fn of_core(name: &str, owner: &str) -> Value {
    let mut own = machine(name, owner);
    let of_core = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": "m"});
    own["metadata"]["ownerReferences"].as_array_mut().unwrap().push(of_core);
    own
}

/// The Machine of the WindowsMachine `a`.
fn core_machine(deletion: Value, status: Value) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "a", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "deletion": deletion,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": "a"}},
        "status": status})
}

/// Caches that show only the MachinePool and never change, a clock that advances one second with each read, and the script.
fn stage(exchanges: Vec<Exchange>) -> (Context, Script) {
    stage_of(Caches::empty(), 1, exchanges)
}

/// A context with these caches, and a clock that advances that many seconds with each read.
fn stage_of(caches: Caches, seconds: i64, exchanges: Vec<Exchange>) -> (Context, Script) {
    let (shared, script) = shared(Caches { machine_pools: holding(vec![machine_pool()]), ..caches }, seconds, exchanges);
    (shared.pool(), script)
}

async fn pass(ctx: &Context) -> Result<Outcome, ReconcileError> {
    reconcile(Arc::new(read(pool())), ctx.clone()).await
}

#[tokio::test]
async fn a_create_without_an_answer_is_tried_again_by_the_same_name() {
    let made = machine("win-x", "pool-uid");
    let (ctx, script) = stage(vec![
        refuse(&format!("POST {MACHINES}"), 504, "Timeout"),
        refuse(&format!("POST {MACHINES}"), 429, "TooManyRequests"),
        refuse(&format!("POST {MACHINES}"), 409, "AlreadyExists"),
        step(&format!("GET {MACHINES}/*"), made),
        step(STATUS, pool()),
        step(STATUS, pool()),
    ]);
    assert_eq!(pass(&ctx).await.unwrap_err().label(), "unreachable");
    assert_eq!(pass(&ctx).await.unwrap_err().label(), "throttled");
    pass(&ctx).await.expect("what the first try made is found");
    // The watch has not shown the machine yet.
    pass(&ctx).await.expect("nothing more is made");
    let seen = script.seen();
    let names = [0, 1, 2].map(|nth| &seen[nth].body["metadata"]["name"]);
    assert_eq!(names, [names[0]; 3]);
}

#[tokio::test]
async fn a_name_that_is_taken_is_left_and_another_one_is_tried() {
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
    let (made, get) = (machine("win-x", "pool-uid"), format!("GET {MACHINES}/win-x"));
    let mut again = made.clone();
    again["metadata"]["uid"] = json!("another uid");
    for gone in [refuse(&get, 404, "NotFound"), step(&get, again)] {
        let (ctx, script) = stage_of(
            Caches::empty(),
            60,
            vec![
                step(&format!("POST {MACHINES}"), made.clone()),
                step(STATUS, pool()),
                step(&get, made.clone()),
                step(STATUS, pool()),
                gone,
                step(&format!("POST {MACHINES}"), machine("win-y", "pool-uid")),
                step(STATUS, pool()),
            ],
        );
        pass(&ctx).await.expect("it is made");
        pass(&ctx).await.expect("it is there");
        pass(&ctx).await.expect("it is gone, and another one is made");
        assert_eq!(script.seen().len(), 7);
    }
}

#[tokio::test]
async fn nothing_is_removed_while_the_annotation_of_the_autoscaler_is_not_seen_yet() {
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
    let stores = |marks: Value| Caches {
        windows_machines: holding(vec![own("a"), own("b")]),
        machines: holding(vec![of_core("a", json!({})), of_core("b", marks)]),
        ..Caches::empty()
    };
    let list =
        |b: Value| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineList", "metadata": {}, "items": [of_core("a", json!({})), b]});
    let mut unreadable = of_core("b", marked.clone());
    unreadable["spec"] = json!(5);
    const OF_CORE: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/lab/machines";
    for b in [of_core("b", marked.clone()), unreadable] {
        let (ctx, script) = stage_of(stores(json!({})), 1, vec![step(&format!("GET {OF_CORE}"), list(b))]);
        assert_eq!(pass(&ctx).await.unwrap_err().label(), "conflict", "the newest would have gone, which is not the one that is named");
        assert!(script.seen()[0].query.contains("pool-name"), "{:?}", script.seen());
    }

    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let steps =
        vec![step(&format!("GET {OF_CORE}"), list(of_core("b", marked.clone()))), step(&format!("DELETE {OF_CORE}/b"), gone), step(STATUS, pool())];
    let (ctx, _script) = stage_of(stores(marked), 1, steps);
    pass(&ctx).await.expect("the one that is named goes");
}

/// The API server refuses a template value for an existing machine, and would refuse it in every pass.
#[tokio::test]
async fn a_change_in_place_that_is_refused_is_said_and_not_tried_at_once() {
    let template = Template { machine: read(json!({"image": "w"})), bootstrap: None, version: Some("v1.36.3".into()) };
    let mut own = of_core("a", "pool-uid");
    own["metadata"]["labels"] = json!({TEMPLATE_LABEL: template.hash()});
    let mut wanted = pool();
    wanted["spec"]["template"]["metadata"] = json!({"annotations": {"^$": "v"}});
    let caches = Caches { windows_machines: holding(vec![own]), ..Caches::empty() };
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (ctx, script) =
        stage_of(caches, 1, vec![refuse(&format!("PATCH {MACHINES}/a"), 422, "Invalid"), step(STATUS, pool()), event, step(STATUS, pool())]);
    for _ in 0..2 {
        reconcile(Arc::new(read(wanted.clone())), ctx.clone()).await.expect("it is reported");
    }
    let conditions = script.seen()[1].body["status"]["conditions"].clone();
    let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("MachinesRefused")), "{ready}");
}

/// The workload cluster refuses labels of the template on an existing Node.
#[tokio::test]
async fn labels_that_a_node_cannot_have_are_said() {
    let template = Template { machine: read(json!({"image": "w"})), bootstrap: Some(read(json!({}))), version: Some("v1.36.3".into()) };
    let id = format!("windows://h1/{}", VmUuid::of("uid-a"));
    let mut own = of_core("a", "pool-uid");
    own["metadata"]["labels"] = json!({TEMPLATE_LABEL: template.hash(), CLUSTER_NAME_LABEL: "c1"});
    own["spec"]["providerID"] = json!(id);
    let ready = json!({"type": "NodeReady", "status": "True", "reason": "NodeReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let machine = core_machine(json!({}), json!({"nodeRef": {"name": "a"}, "conditions": [ready]}));
    let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "a", "namespace": "lab", "uid": "c",
            "ownerReferences": [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "name": "a", "uid": "uid-a"}]},
        "spec": {}});
    let caches = Caches {
        machine_pools: holding(vec![machine_pool()]),
        windows_machines: holding(vec![own]),
        machines: holding(vec![machine]),
        configs: holding(vec![config]),
        ..Caches::empty()
    };
    let mut wanted = pool();
    wanted["spec"]["template"]["bootstrap"] = json!({"kubelet": {"nodeLabels": {"tier": "web"}}});
    wanted["spec"]["providerIDList"] = json!([id]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "n", "resourceVersion": "1"}, "spec": {"providerID": id}});
    let kube_system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "k"}});
    let (workload, nodes) = Script::new(vec![
        step("GET /api/v1/namespaces/kube-system", kube_system),
        step("GET /api/v1/nodes/a", node),
        refuse("PATCH /api/v1/nodes/a", 422, "Invalid"),
    ]);
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (shared, script) =
        shared_to(caches, 1, vec![kubeconfig(), step(STATUS, pool()), event], Arc::new(move |_: kube::Config| Ok(workload.clone())));
    let (wanted, ctx): (Arc<WindowsNodePool>, _) = (Arc::new(read(wanted)), shared.pool());
    with_answers(async || reconcile(wanted.clone(), ctx.clone()).await).await.expect("it is reported");
    assert_eq!(nodes.seen()[2].body["metadata"]["labels"], json!({"tier": "web"}));
    let conditions = script.seen()[1].body["status"]["conditions"].clone();
    let up_to_date = conditions.as_array().unwrap().iter().find(|c| c["type"] == "MachinesUpToDate").unwrap();
    assert_eq!((&up_to_date["status"], &up_to_date["reason"]), (&json!("False"), &json!("NodesRefused")), "{up_to_date}");
}

#[tokio::test]
async fn no_more_pods_are_told_than_have_an_address() {
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsCluster", "name": "w1"}}});
    let windows_cluster = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
        "metadata": {"name": "w1", "namespace": "lab"}, "spec": {},
        "status": {"components": {"network": {"name": "Calico", "role": "Ask", "podsPerNode": 12}}}});
    let caches = Caches { clusters: holding(vec![cluster]), windows_clusters: holding(vec![windows_cluster]), ..Caches::empty() };
    let (ctx, script) = stage_of(caches, 1, vec![step(&format!("POST {MACHINES}"), machine("win-x", "pool-uid")), step(STATUS, pool())]);
    let mut pool = pool();
    pool["metadata"]["labels"] = json!({CLUSTER_NAME_LABEL: "c1"});
    reconcile(Arc::new(read(pool)), ctx).await.expect("a machine is made");
    assert_eq!(script.seen()[1].body["status"]["capacity"]["pods"], "12");
}

/// Core does not pass the limits on.
#[tokio::test]
async fn machines_get_the_time_limits_of_their_machine_pool() {
    let template = Template { machine: read(json!({"image": "w"})), bootstrap: None, version: Some("v1.36.3".into()) };
    let mut own = of_core("a", "pool-uid");
    own["metadata"]["labels"] = json!({TEMPLATE_LABEL: template.hash()});
    let mut owner = machine_pool();
    owner["spec"]["template"]["spec"]["deletion"] = json!({"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 10});
    const OF_CORE: &str = "PATCH /apis/cluster.x-k8s.io/v1beta2/namespaces/lab/machines/a";
    for (has, lacks) in [
        (json!({}), json!({"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 10})),
        (json!({"nodeDrainTimeoutSeconds": 5, "nodeDeletionTimeoutSeconds": 10}), json!({"nodeDrainTimeoutSeconds": 60})),
        (json!({"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 10}), Value::Null),
    ] {
        let mut machine = core_machine(has.clone(), json!({}));
        machine["metadata"]["resourceVersion"] = json!("1");
        let caches = Caches {
            machine_pools: holding(vec![owner.clone()]),
            windows_machines: holding(vec![own.clone()]),
            machines: holding(vec![machine.clone()]),
            ..Caches::empty()
        };
        machine["metadata"]["resourceVersion"] = json!("2");
        let writes = if lacks.is_null() { vec![] } else { vec![step(OF_CORE, machine)] };
        let passes = writes.len() + 1;
        let (shared, script) = shared(caches, 1, writes.into_iter().chain([step(STATUS, pool())]).collect());
        // The cache does not show the write of the first pass.
        for _ in 0..passes {
            pass(&shared.pool()).await.expect("it is written");
        }
        assert_eq!(script.seen()[0].body["spec"]["deletion"], lacks, "{has}");
    }
}

/// After a restore, every object has another UID; and other clients remove owner references.
#[tokio::test]
async fn machines_that_lost_their_owner_are_adopted_and_not_recreated() {
    const GIVEN: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines/win-abc12";
    for owners in [json!([]), machine("a", "uid before the restore")["metadata"]["ownerReferences"].clone()] {
        let mut lost = machine("win-abc12", "");
        lost["metadata"]["ownerReferences"] = owners.clone();
        lost["metadata"]["labels"] = json!({POOL_LABEL: "win"});
        let caches = Caches { windows_machines: holding(vec![lost.clone()]), ..Caches::empty() };
        let (ctx, script) = stage_of(caches, 1, vec![step(GIVEN, lost)]);
        pass(&ctx).await.expect("it is adopted");
        let metadata = &script.seen()[0].body["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["uid"], "pool-uid", "{metadata}");
        assert_eq!((metadata["ownerReferences"].as_array().unwrap().len(), &metadata["resourceVersion"]), (1, &json!("1")));
    }
}

/// The cluster is the same, but has another name from now on.
#[tokio::test]
async fn a_configuration_that_is_handed_over_keeps_the_cluster_of_its_token() {
    let joins = json!({JOINS_ANNOTATION: "own/cluster", MADE_FOR_ANNOTATION: "own/cluster"});
    let mut machine = machine("win-abc12", "pool-uid");
    json_patch::merge(&mut machine, &json!({"metadata": {"labels": {crate::api::pool::POOL_LABEL: "win"}, "annotations": joins}}));
    let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig", "spec": {},
        "metadata": {"name": "win-abc12", "namespace": "lab", "uid": "c", "resourceVersion": "1", "annotations": joins, "ownerReferences":
            [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "name": "win-abc12", "uid": "uid-win-abc12"}]}});
    let caches = Caches { windows_machines: holding(vec![machine.clone()]), configs: holding(vec![config.clone()]), ..Caches::empty() };
    let (ctx, script) = stage_of(caches, 1, vec![step("PATCH *", config), step("PATCH *", machine)]);
    pass(&ctx).await.expect("it is handed over");
    let of = |nth: usize| script.seen()[nth].body["metadata"].clone();
    assert_eq!((&of(0)["uid"], &of(0)["annotations"]), (&json!("c"), &json!({JOINS_ANNOTATION: null, MADE_FOR_ANNOTATION: "c1"})));
    assert_eq!(of(1)["annotations"][MADE_FOR_ANNOTATION], "own/cluster", "the owner mark of a VM does not change");
}

#[tokio::test]
async fn machines_of_another_pool_are_not_adopted() {
    let other = |name: &str, label: &str, owner: &str| {
        let mut other = machine(name, "another uid");
        other["metadata"]["labels"] = json!({POOL_LABEL: label});
        other["metadata"]["ownerReferences"][0]["name"] = json!(owner);
        other
    };
    for machine_of_other in
        [other("win-abc12", "other", "other"), other("win-abc12", "win", "other"), other("win-abc12", "other", "win"), other("my-own", "win", "win")]
    {
        let caches = Caches { windows_machines: holding(vec![machine_of_other]), ..Caches::empty() };
        let (ctx, _script) = stage_of(caches, 1, vec![step(&format!("POST {MACHINES}"), machine("win-x", "pool-uid")), step(STATUS, pool())]);
        pass(&ctx).await.expect("one of its own is made");
    }
}

/// A newer version wrote the machine: its VM runs all the same.
#[tokio::test]
async fn a_pool_waits_for_a_machine_that_cannot_be_read() {
    let mut owned = machine("win-abc12", "pool-uid");
    owned["spec"]["image"] = json!(5);
    let mut lost = owned.clone();
    lost["metadata"]["ownerReferences"] = json!([]);
    lost["metadata"]["labels"] = json!({crate::api::pool::POOL_LABEL: "win"});
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    for (unreadable, deleted) in [(owned.clone(), Value::Null), (lost, Value::Null), (owned, json!("2026-01-02T00:00:00Z"))] {
        // One machine more than requested.
        let caches = Caches {
            windows_machines: holding_unreadable(vec![machine("a", "pool-uid"), machine("b", "pool-uid"), unreadable]),
            clusters: holding(vec![]),
            ..Caches::empty()
        };
        let (ctx, script) = stage_of(caches, 1, vec![step(STATUS, pool()), event()]);
        let mut object = pool();
        object["metadata"]["deletionTimestamp"] = deleted;
        let outcome = reconcile(Arc::new(read(object)), ctx.clone()).await.unwrap();
        assert_eq!(outcome, Outcome::requeue_after(RECHECK), "nothing tells when it is deleted");
        let ready = &script.seen()[0].body["status"]["conditions"][1];
        assert_eq!((&ready["type"], &ready["status"], &ready["reason"]), (&json!("Ready"), &json!("False"), &json!("InvalidSpec")), "{ready}");
        assert!(ready["message"].as_str().unwrap().contains("win-abc12"), "{ready}");
    }
}

#[tokio::test]
async fn a_pool_that_goes_waits_for_a_configuration_that_cannot_be_read() {
    let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-abc12", "namespace": "lab", "uid": "c", "labels": {crate::api::pool::POOL_LABEL: "win"}}, "spec": 5});
    let (ctx, script) = stage_of(Caches { configs: holding_unreadable(vec![config]), ..Caches::empty() }, 1, vec![step(STATUS, pool())]);
    let mut object = pool();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    reconcile(Arc::new(read(object)), ctx.clone()).await.unwrap();
    assert!(script.seen()[0].body["status"].to_string().contains("1 bootstrap configurations"), "the finalizer stays");
}
