mod left_nodes;
mod preconditions;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::cluster_ref::{ClusterRef, JOINS_ANNOTATION, MADE_FOR_ANNOTATION};
use crate::api::machine::FINALIZER;
use crate::api::name::ObjectKey;
use crate::domain::identity::HYPERVISOR_ANNOTATION;
use crate::engine::caches::Caches;
use crate::kinds::machine::reconcile::*;
use crate::kube_api::mock::{Exchange, Script, refuse, step};
use crate::testing::server::{Server, connect, kubeconfig};
use crate::testing::{Empty, holding, holding_unreadable, list_nodes, read, shared, shared_to, with_answers};

const OBJECT: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines/win-1";
const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines/win-1/status";

fn machine(metadata: Value) -> Value {
    let mut all = json!({"name": "win-1", "namespace": "lab", "uid": "w", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
    json_patch::merge(&mut all, &metadata);
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "metadata": all, "spec": {"image": "w"}})
}

/// A machine of Cluster API.
fn owned(metadata: Value) -> Value {
    let mut all = json!({"labels": {"cluster.x-k8s.io/cluster-name": "c1"},
        "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "win-1", "uid": "m", "controller": true}]});
    json_patch::merge(&mut all, &metadata);
    machine(all)
}

fn caches() -> Caches {
    let of_core = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "version": "v1.36.3", "bootstrap": {"dataSecretName": "win-1"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": "win-1"}}});
    let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {},
        "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}}});
    let hypervisor = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
        "metadata": {"name": "h1", "namespace": "lab", "uid": "h"}, "spec": {"simulated": {}}});
    Caches { machines: holding(vec![of_core]), clusters: holding(vec![cluster]), hypervisors: holding(vec![hypervisor]), ..Caches::empty() }
}

fn stage(exchanges: Vec<Exchange>) -> (Context, Script) {
    let (shared, script) = shared(caches(), 1, exchanges);
    (shared.machine(), script)
}

/// Marks the hypervisor as listed, without VMs. It answers as `driver` does.
fn admit(ctx: &Context, driver: Empty) {
    ctx.hypervisors.inventories.listed(&ObjectKey::new("lab", "h1"), vec![]);
    ctx.hypervisors.drivers.put(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), Arc::new(driver));
}

async fn pass(ctx: &Context, object: Value) -> Outcome {
    let object: Arc<WindowsMachine> = Arc::new(read(object));
    with_answers(async || reconcile(object.clone(), ctx.clone()).await).await.unwrap()
}

#[tokio::test]
async fn nothing_is_written_before_there_is_an_owner() {
    let (ctx, _script) = stage(vec![]);
    assert_eq!(pass(&ctx, machine(json!({}))).await, Outcome::done());
}

#[tokio::test]
async fn finalizer_hypervisor_and_cluster_are_stored_in_one_write() {
    let (ctx, script) = stage(vec![step(OBJECT, owned(json!({})))]);
    assert_eq!(pass(&ctx, owned(json!({}))).await, Outcome::done());
    let metadata = &script.seen()[0].body["metadata"];
    assert_eq!((&metadata["finalizers"], &metadata["annotations"][HYPERVISOR_ANNOTATION]), (&json!([FINALIZER]), &json!("h1")));
    assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("w"), &json!("1")));
    assert_eq!(metadata["annotations"][MADE_FOR_ANNOTATION], "c1");
}

#[tokio::test]
async fn a_hypervisor_that_was_never_asked_is_waited_for_without_a_write() {
    let (ctx, _script) = stage(vec![]);
    let adopted = owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1"}}));
    assert_eq!(pass(&ctx, adopted).await, Outcome::requeue_after(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_hypervisor_that_is_not_admitted_is_not_asked() {
    let (ctx, _script) = stage(vec![]);
    let h1 = ObjectKey::new("lab", "h1");
    ctx.hypervisors.inventories.listed(&h1, vec![]);
    ctx.hypervisors.drivers.connect(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), &Default::default()).unwrap();
    let leaving =
        owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    assert_eq!(pass(&ctx, leaving.clone()).await, Outcome::requeue_after(Duration::from_secs(1)), "an absence there would release the machine");
    let no_kubeconfig = refuse("GET /api/v1/namespaces/lab/secrets/c1-kubeconfig", 404, "NotFound");
    let (ctx, script) = stage(vec![no_kubeconfig, step(OBJECT, owned(json!({})))]);
    ctx.hypervisors.inventories.listed(&h1, vec![]);
    ctx.hypervisors.drivers.connect(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), &Default::default()).unwrap();
    ctx.hypervisors.drivers.admit(&h1, Some(jiff::Timestamp::UNIX_EPOCH));
    pass(&ctx, leaving).await;
    assert_eq!(script.seen()[1].body["metadata"]["finalizers"], json!([]));
}

/// The Node of the machine `w`.
fn node() -> Value {
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("w"));
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": "n"}, "spec": {"providerID": id}})
}

#[tokio::test]
async fn what_may_be_hidden_releases_no_machine_and_is_not_called_removed() {
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let adopted = || owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1"}}));
    let mut leaving = adopted();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut made = adopted();
    made["spec"]["providerID"] = json!(format!("windows://h1/{}", crate::api::name::VmUuid::of("w")));
    // Each condition that is reported as a problem has an event.
    for (object, events) in [(leaving, 2), (made, 1)] {
        let exchanges = std::iter::once(step(STATUS, owned(json!({})))).chain(std::iter::repeat_with(event).take(events));
        let (ctx, script) = stage(exchanges.collect());
        admit(&ctx, Empty { hides: true, ..Empty::default() });
        pass(&ctx, object).await;
        let said = script.seen()[0].body["status"]["conditions"].to_string();
        assert!(said.contains("HypervisorPermissionsMissing") && said.contains("grant a right"), "{said}");
    }
}

#[tokio::test]
async fn a_machine_that_was_never_adopted_goes_at_once() {
    let (ctx, script) = stage(vec![step(OBJECT, owned(json!({})))]);
    pass(&ctx, owned(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}))).await;
    assert_eq!(script.seen()[0].body["metadata"]["finalizers"], json!([]));
}

#[tokio::test]
async fn the_node_of_a_standalone_pool_goes_before_its_vm() {
    let secret = "GET /api/v1/namespaces/lab/secrets/other";
    let (ctx, script) = stage(vec![refuse(secret, 403, "Forbidden"), step(STATUS, owned(json!({})))]);
    admit(&ctx, Empty { hides: true, ..Empty::default() });
    let leaving = machine(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2025-12-31T23:54:00Z",
        "annotations": {HYPERVISOR_ANNOTATION: "h1", JOINS_ANNOTATION: "secret/other/value"}}));
    let error = reconcile(Arc::new(read(leaving)), ctx.clone()).await.unwrap_err();
    assert_eq!(error.label(), "forbidden", "the management cluster refuses the kubeconfig: the hypervisor is not asked");
    let since = &script.seen()[1].body["status"]["drainingSince"];
    assert!(since.as_str().unwrap().starts_with("2026-01-01T00:00"), "by our own clock: {since}");
}

/// A VM that stops takes the pods on its Node with it.
#[tokio::test]
async fn a_node_that_the_watch_has_not_shown_is_drained_before_its_vm_stops() {
    let server = Arc::new(Mutex::new(Server::holding([])));
    let (shared, script) = shared_to(caches(), 1, vec![kubeconfig(), step(STATUS, owned(json!({})))], connect(&server));
    let ctx = shared.machine();
    admit(&ctx, Empty::default());
    let leaving = machine(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {HYPERVISOR_ANNOTATION: "h1", JOINS_ANNOTATION: "secret/c1-kubeconfig/value"}}));
    let cluster = ClusterRef::standalone(&read::<WindowsMachine>(leaving.clone()).metadata).unwrap();
    list_nodes(&ctx.clusters, &cluster).await;
    server.lock().others.push(node());
    for _ in 0..2 {
        pass(&ctx, leaving.clone()).await;
    }
    let asked: Vec<String> = server.lock().asked.iter().filter(|line| line.contains("nodes/win-1")).cloned().collect();
    let [get, cordon, delete] = ["GET", "PATCH", "DELETE"].map(|method| format!("{method} /api/v1/nodes/win-1"));
    assert_eq!(asked, [&get, &cordon, &get, &delete].map(String::clone));
    let said = script.seen()[1].body["status"]["conditions"].to_string();
    assert!(said.contains("Node win-1 is being removed"), "{said}");
}

/// The Node of the other machine has the name that this machine's own Node would have.
#[tokio::test]
async fn the_node_of_another_machine_is_not_drained() {
    let mut other = node();
    other["spec"]["providerID"] = json!("windows://h1/3f2504e0-4f89-51d3-9a0c-0305e82c3301");
    let server = Arc::new(Mutex::new(Server { others: vec![other], ..Server::holding([]) }));
    let (shared, script) = shared_to(caches(), 1, vec![kubeconfig(), step(OBJECT, owned(json!({})))], connect(&server));
    let ctx = shared.machine();
    admit(&ctx, Empty::default());
    let leaving = machine(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {HYPERVISOR_ANNOTATION: "h1", JOINS_ANNOTATION: "secret/c1-kubeconfig/value"}}));
    list_nodes(&ctx.clusters, &ClusterRef::standalone(&read::<WindowsMachine>(leaving.clone()).metadata).unwrap()).await;
    pass(&ctx, leaving).await;
    assert_eq!(script.seen()[1].body["metadata"]["finalizers"], json!([]), "the machine goes");
    let asked: Vec<String> = server.lock().asked.iter().filter(|line| line.contains("nodes/win-1")).cloned().collect();
    assert!(!asked.is_empty() && asked.iter().all(|line| line.starts_with("GET ")), "{asked:?}");
}

/// The copy is an object that was exported and created again under another name.
#[tokio::test]
async fn a_copy_of_a_machine_does_not_take_the_vm_of_the_original_with_it() {
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("original"));
    let mut original = owned(json!({"name": "win-0", "uid": "original"}));
    original["spec"]["providerID"] = json!(id);
    let (shared, script) = shared(
        Caches { windows_machines: holding(vec![original]), ..caches() },
        1,
        vec![step(STATUS, owned(json!({}))), step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({})), step(OBJECT, owned(json!({})))],
    );
    let ctx = shared.machine();
    ctx.hypervisors.inventories.listed(&ObjectKey::new("lab", "h1"), vec![]);
    let mut copy = owned(json!({"finalizers": [FINALIZER]}));
    copy["spec"]["providerID"] = json!(id);
    pass(&ctx, copy.clone()).await;
    let conditions = &script.seen()[0].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Ready" && c["reason"] == "ForeignVirtualMachine"), "{conditions}");
    copy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pass(&ctx, copy).await;
    assert_eq!(script.seen()[2].body["metadata"]["finalizers"], json!([]), "the hypervisor is not asked");
}

#[tokio::test]
async fn a_machine_that_cannot_be_read_keeps_its_vm_from_its_copies() {
    let mut original = owned(json!({"name": "win-0", "uid": "original"}));
    original["spec"] = json!(5);
    let (shared, script) =
        shared(Caches { windows_machines: holding_unreadable(vec![original]), ..caches() }, 1, vec![step(OBJECT, owned(json!({})))]);
    let mut copy = owned(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    copy["spec"]["providerID"] = json!(format!("windows://h1/{}", crate::api::name::VmUuid::of("original")));
    pass(&shared.machine(), copy).await;
    assert_eq!(script.seen()[0].body["metadata"]["finalizers"], json!([]), "the hypervisor is not asked");
}

#[tokio::test]
async fn a_machine_that_cannot_be_read_takes_its_place_on_a_hypervisor() {
    for (chosen, is_full) in [("h1", true), ("h2", false)] {
        let mut other = owned(json!({"name": "win-0", "uid": "o", "annotations": {HYPERVISOR_ANNOTATION: chosen}}));
        other["spec"] = json!(5);
        let mut limited = serde_json::to_value(&*caches().hypervisors.get("lab", "h1").unwrap()).unwrap();
        limited["spec"] = json!({"simulated": {"images": ["w"]}, "limits": {"machines": 1}});
        let exchanges = if is_full {
            vec![step(STATUS, owned(json!({}))), step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}))]
        } else {
            vec![refuse("GET /api/v1/namespaces/lab/secrets/win-1", 503, "ServiceUnavailable")]
        };
        let caches = Caches { windows_machines: holding_unreadable(vec![other]), hypervisors: holding(vec![limited]), ..caches() };
        let (shared, script) = shared(caches, 1, exchanges);
        let (ctx, h1) = (shared.machine(), ObjectKey::new("lab", "h1"));
        ctx.hypervisors.inventories.listed(&h1, vec![]);
        ctx.hypervisors.drivers.connect(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), &Default::default()).unwrap();
        ctx.hypervisors.drivers.admit(&h1, Some(jiff::Timestamp::UNIX_EPOCH));
        let annotations = json!({HYPERVISOR_ANNOTATION: "h1", MADE_FOR_ANNOTATION: "c1"});
        let adopted = owned(json!({"finalizers": [FINALIZER], "annotations": annotations, "creationTimestamp": "2025-12-01T00:00:00Z"}));
        let ended = reconcile(Arc::new(read(adopted)), ctx).await;
        assert_eq!(ended.is_ok(), is_full, "where there is room, its Secret is read next: {ended:?}");
        if is_full {
            let conditions = script.seen()[0].body["status"]["conditions"].clone();
            let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
            assert_eq!(ready["reason"], "NoCapacity", "{ready}");
        }
    }
}

/// The admins of two namespaces may join the cluster that CAPW runs in, and one of them knows the other's provider IDs.
#[tokio::test]
async fn a_copy_in_another_namespace_does_not_take_the_node_of_the_original_with_it() {
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("original"));
    let forged = |metadata: Value| {
        let mut all = json!({"annotations": {HYPERVISOR_ANNOTATION: "h1", JOINS_ANNOTATION: "own/cluster"}});
        json_patch::merge(&mut all, &metadata);
        let mut machine = machine(all);
        machine["spec"]["providerID"] = json!(id);
        machine
    };
    let original = forged(json!({"namespace": "other", "uid": "original"}));
    let (shared, script) = shared(
        Caches { windows_machines: holding(vec![original]), ..caches() },
        1,
        vec![step(STATUS, owned(json!({}))), step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({})), step(OBJECT, owned(json!({})))],
    );
    let ctx = shared.machine();
    admit(&ctx, Empty::default());
    pass(&ctx, forged(json!({"finalizers": [FINALIZER]}))).await;
    let conditions = script.seen()[0].body["status"]["conditions"].to_string();
    assert!(conditions.contains("ForeignVirtualMachine") && conditions.contains("WindowsMachine other/win-1"), "{conditions}");
    pass(&ctx, forged(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}))).await;
    assert_eq!(script.seen()[2].body["metadata"]["finalizers"], json!([]), "the cluster is not asked");
}

/// The VM would be left behind, and a new machine would be bound to the other hypervisor permanently.
#[tokio::test]
async fn a_hypervisor_that_cannot_be_read_is_not_gone() {
    let ready = |written: &Script| {
        let conditions = written.seen()[0].body["status"]["conditions"].clone();
        let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap().clone();
        (ready["reason"].as_str().unwrap().to_owned(), ready["message"].as_str().unwrap().to_owned())
    };
    let hypervisors = || {
        let readable = serde_json::to_value(&*caches().hypervisors.get("lab", "h1").unwrap()).unwrap();
        let mut unreadable = readable.clone();
        (unreadable["metadata"]["name"], unreadable["spec"]) = (json!("h2"), json!(5));
        holding_unreadable(vec![readable, unreadable])
    };
    let adopted = json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h2"}, "deletionTimestamp": "2026-01-01T00:00:00Z"});
    for (metadata, reason, words) in [
        (adopted, "HypervisorUnreachable", "WindowsHypervisor h2 is unreachable: CAPW cannot read this object"),
        (json!({}), "HypervisorMissing", "there are: h1, h2"),
    ] {
        let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
        let (shared, script) = shared(Caches { hypervisors: hypervisors(), ..caches() }, 1, vec![step(STATUS, owned(json!({}))), event]);
        pass(&shared.machine(), owned(metadata)).await;
        let (said, message) = ready(&script);
        assert!(said == reason && message.contains(words), "{said}: {message}");
    }
}

/// This process has created the data of the configuration.
#[tokio::test]
async fn bootstrap_data_that_was_just_made_here_is_not_read() {
    let mut h1 = serde_json::to_value(&*caches().hypervisors.get("lab", "h1").unwrap()).unwrap();
    h1["spec"] = json!({"simulated": {"images": ["w"]}});
    let (shared, script) = shared(Caches { hypervisors: holding(vec![h1]), ..caches() }, 1, vec![]);
    let (ctx, h1) = (shared.machine(), ObjectKey::new("lab", "h1"));
    ctx.hypervisors.inventories.listed(&h1, vec![]);
    ctx.hypervisors.drivers.connect(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), &Default::default()).unwrap();
    ctx.hypervisors.drivers.admit(&h1, Some(jiff::Timestamp::UNIX_EPOCH));
    ctx.made_secrets.keep(read(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab"}, "data": {"value": "I2Nsb3VkLWNvbmZpZw=="}}),
    ));
    let adopted = owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1", MADE_FOR_ANNOTATION: "c1"}}));
    assert_eq!(pass(&ctx, adopted).await, Outcome::now(), "the VM is made");
    assert!(script.seen().is_empty(), "{:?}", script.seen().len());
}

/// The third failure in a row is reported with the hypervisor's message and one event; the first success ends the report.
#[tokio::test]
async fn a_fault_that_does_not_pass_by_itself_is_said() {
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab"}, "data": {"value": "I2Nsb3VkLWNvbmZpZw=="}});
    let mut with_fault = serde_json::to_value(&*caches().hypervisors.get("lab", "h1").unwrap()).unwrap();
    with_fault["spec"] = json!({"simulated": {"images": ["w"], "faults": [{"names": "*", "fault": "CreateFails"}],
        "delays": {"createMilliseconds": 0, "bootMilliseconds": 0, "joinMilliseconds": 0, "stopMilliseconds": 0}}});
    let exchanges =
        vec![step("GET /api/v1/namespaces/lab/secrets/win-1", secret), step(STATUS, owned(json!({}))), event(), step(STATUS, owned(json!({})))];
    let (shared, script) = shared(Caches { hypervisors: holding(vec![with_fault]), ..caches() }, 1, exchanges);
    let (ctx, h1) = (shared.machine(), ObjectKey::new("lab", "h1"));
    ctx.hypervisors.inventories.listed(&h1, vec![]);
    ctx.hypervisors.drivers.connect(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), &Default::default()).unwrap();
    ctx.hypervisors.drivers.admit(&h1, Some(jiff::Timestamp::UNIX_EPOCH));
    let adopted = owned(
        json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1", MADE_FOR_ANNOTATION: "c1"}, "creationTimestamp": "2025-12-01T00:00:00Z"}),
    );
    let ready = |request: usize| {
        let conditions = script.seen()[request].body["status"]["conditions"].clone();
        let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap().clone();
        (ready["reason"].as_str().unwrap().to_owned(), ready["message"].as_str().unwrap().to_owned())
    };
    let run = async |object: &Value| reconcile(Arc::new(read(object.clone())), ctx.clone()).await;
    for written in [1, 1, 3] {
        assert_eq!(run(&adopted).await.unwrap_err().label(), "transient");
        assert_eq!(script.seen().len(), written);
    }
    let (reason, message) = ready(1);
    assert!(reason == "HypervisorFailing" && message.contains("WindowsHypervisor h1") && message.contains("time 3 of 3"), "{reason}: {message}");
    let mut failing = adopted;
    failing["status"] = script.seen()[1].body["status"].clone();
    assert_eq!(run(&failing).await.unwrap(), Outcome::now(), "it is made");
    run(&failing).await.unwrap();
    assert_eq!(ready(3).0, "Provisioning", "it is started");
}

#[tokio::test]
async fn a_removal_with_nothing_to_report_writes_nothing() {
    use crate::api::condition::{ConditionType, Desired, Reason};
    use crate::kinds::machine::context::write;
    let (ctx, script) = stage(vec![step(STATUS, owned(json!({})))]);
    let mut deleted = owned(json!({"finalizers": [FINALIZER], "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let ready = json!({"type": "Ready", "status": "True", "reason": "Provisioned", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    deleted["status"] = json!({"observedGeneration": 1, "conditions": [ready]});
    let object: WindowsMachine = read(deleted);
    write(&ctx, &object, &[], None, None).await.unwrap();
    assert!(script.seen().is_empty());
    let deleting = Desired::yes(ConditionType::Deleting, Reason::Deleting);
    write(&ctx, &object, &[deleting], None, None).await.unwrap();
    assert_eq!(script.seen()[0].body["status"]["observedGeneration"], 2);
}
