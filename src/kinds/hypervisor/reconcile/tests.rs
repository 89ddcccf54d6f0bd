use serde_json::{Value, json};

use crate::api::condition::Desired;
use crate::domain::identity::HYPERVISOR_ANNOTATION;
use crate::engine::caches::Caches;
use crate::engine::watch::Selection;
use crate::kinds::hypervisor::reconcile::*;
use crate::kinds::machine::decide::step::Reach;
use crate::kube_api::mock::{Script, step};
use crate::testing::{Empty, holding_unreadable, read, shared};
use crate::vm::{MachineKey, Observed, Power, Present, Seeded};

const OBJECT: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowshypervisors/h1";
const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowshypervisors/h1/status";

fn hypervisor(finalizers: &[&str], deleted: bool) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
        "metadata": {"name": "h1", "namespace": "lab", "uid": "h", "resourceVersion": "1", "finalizers": finalizers,
            "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z")},
        "spec": {}})
}

/// A context whose API server accepts a status that reports a failure, with an event for each of the two conditions.
fn stage(machines: Vec<Value>, request: &str) -> (Context, Script) {
    let caches = Caches { windows_machines: holding_unreadable(machines), ..Caches::empty() };
    let events = if request == STATUS { 2 } else { 0 };
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let exchanges = std::iter::once(step(request, hypervisor(&[], false))).chain(std::iter::repeat_with(event).take(events));
    let (shared, script) = shared(caches, 1, exchanges.collect());
    (shared.hypervisor(&Selection::default()), script)
}

async fn pass(ctx: &Context, object: Value) -> Outcome {
    reconcile(Arc::new(read(object)), ctx.clone()).await.unwrap()
}

#[tokio::test]
async fn the_finalizer_is_stored_before_the_endpoint_is_asked() {
    let (ctx, script) = stage(vec![], OBJECT);
    assert_eq!(pass(&ctx, hypervisor(&[], false)).await, Outcome::done());
    assert_eq!(script.seen()[0].body["metadata"]["finalizers"], json!([FINALIZER]));
}

#[tokio::test]
async fn an_endpoint_that_fails_is_reported_and_known_to_machines() {
    let (ctx, script) = stage(vec![], STATUS);
    let outcome = pass(&ctx, hypervisor(&[FINALIZER], false)).await;
    assert_eq!(outcome, Outcome::requeue_after(std::time::Duration::from_secs(1)));
    let conditions = &script.seen()[0].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Reachable" && c["reason"] == "InvalidSpec"), "{conditions}");
    let key = ObjectKey::new("lab", "h1");
    assert!(matches!(ctx.hypervisors.inventories.reach(&key), Reach::Unreachable(_)));
}

/// The endpoint's report that a VM does not exist would release a machine.
#[tokio::test]
async fn an_endpoint_that_is_another_one_now_is_not_used() {
    let event = step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (shared, script) = shared(Caches::empty(), 1, vec![step(STATUS, hypervisor(&[], false)), event]);
    let (ctx, mut object) = (shared.hypervisor(&Selection::default()), hypervisor(&[FINALIZER], false));
    object["status"] = json!({"endpointID": "another"});
    ctx.hypervisors.drivers.put(&read(object.clone()), Arc::new(Empty::default()));
    pass(&ctx, object).await;
    let conditions = &script.seen()[0].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Reachable" && c["reason"] == "EndpointChanged"), "{conditions}");
    assert!(ctx.hypervisors.drivers.connected(&ObjectKey::new("lab", "h1")).is_none());
}

#[tokio::test]
async fn an_endpoint_that_cannot_run_vms_as_asked_is_reported_and_used_for_those_that_are_there() {
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let (shared, script) = shared(Caches::empty(), 1, vec![step(STATUS, hypervisor(&[], false)), event()]);
    let (ctx, mut object) = (shared.hypervisor(&Selection::default()), hypervisor(&[FINALIZER], false));
    ctx.hypervisors.drivers.put(&read(object.clone()), Arc::new(Empty { unfit: Some("no KVM".into()), ..Empty::default() }));
    pass(&ctx, object.clone()).await;
    object["status"] = script.seen()[0].body["status"].clone();
    let said = |type_: &str| {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == type_).unwrap();
        [&found["status"], &found["reason"], &found["message"]].map(|value| value.as_str().unwrap().to_owned())
    };
    assert_eq!(
        (said("Reachable"), said("Ready")),
        (["True", "Reachable", ""].map(Into::into), ["False", "HypervisorUnfit", "no KVM"].map(Into::into))
    );
    assert_eq!(ctx.hypervisors.inventories.reach(&ObjectKey::new("lab", "h1")), Reach::Reachable);
    // The endpoint is not described at each listing, and stays unfit until it is described again.
    pass(&ctx, object.clone()).await;
    assert_eq!(script.seen().len(), 2, "nothing has changed");
}

#[tokio::test]
async fn it_stays_while_a_machine_uses_it() {
    let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "m", "namespace": "lab", "annotations": {HYPERVISOR_ANNOTATION: "h1"}}, "spec": {"image": "w"}});
    let (ctx, _script) = stage(vec![machine], STATUS);
    pass(&ctx, hypervisor(&[FINALIZER], true)).await;
    let (ctx, script) = stage(vec![], OBJECT);
    pass(&ctx, hypervisor(&[FINALIZER], true)).await;
    assert_eq!(script.seen()[0].body["metadata"]["finalizers"], json!([]));
}

#[tokio::test]
async fn it_stays_while_a_machine_that_cannot_be_read_may_use_it() {
    for (annotations, request) in
        [(json!({HYPERVISOR_ANNOTATION: "h1"}), STATUS), (json!({}), STATUS), (json!({HYPERVISOR_ANNOTATION: "h2"}), OBJECT)]
    {
        let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
            "metadata": {"name": "m", "namespace": "lab", "uid": "m", "annotations": annotations}, "spec": 5});
        let (ctx, _script) = stage(vec![machine], request);
        pass(&ctx, hypervisor(&[FINALIZER], true)).await;
    }
}

/// Another process reports about the hypervisor; machines of this process may be on it.
#[tokio::test]
async fn one_that_the_watch_filter_does_not_select_is_looked_at_and_never_written() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let ctx = shared.hypervisor(&Selection { watch_filter: Some("a".into()), ..Selection::default() });
    for deleted in [false, true] {
        assert_ne!(pass(&ctx, hypervisor(&[], deleted)).await, Outcome::done(), "it is checked again");
    }
    assert!(matches!(ctx.hypervisors.inventories.reach(&ObjectKey::new("lab", "h1")), Reach::Unreachable(_)));
}

const MACHINES: &str = "GET /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines";

/// A VM that has had no machine for that many minutes, on a hypervisor that removes such a VM after an hour.
struct Orphaned {
    minutes: i64,
    orphans: &'static str,
    deleted: bool,
    vm: Observed,
    /// The machines that the API server lists.
    machines: Vec<Value>,
    /// How often the machines are listed.
    lists: usize,
}

fn orphaned(machines: Vec<Value>, lists: usize) -> Orphaned {
    let present = Present { power: Power::On, seeded: Seeded::No, vm: true, addresses: vec![], report: None, trouble: None, warning: None };
    Orphaned { minutes: 60, orphans: "Remove", deleted: false, vm: Observed::Present(present), machines, lists }
}

fn machine(spec: Value) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "m", "namespace": "lab", "uid": "w"}, "spec": spec})
}

/// Runs two ticks. Returns the reported condition of each, and the VMs that were to be removed.
async fn two_ticks(case: Orphaned) -> (Vec<Option<Desired>>, Vec<MachineKey>) {
    let list =
        || json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineList", "metadata": {}, "items": case.machines});
    let exchanges = std::iter::repeat_with(|| step(MACHINES, list())).take(case.lists).collect();
    let (shared, _script) = shared(Caches::empty(), 1, exchanges);
    let ctx = shared.hypervisor(&Selection::default());
    let mut object: WindowsHypervisor = read(hypervisor(&[FINALIZER], case.deleted));
    object.spec.orphans = read(json!(case.orphans));
    let driver = Arc::new(Empty { observed: Some(case.vm), ..Empty::default() });
    ctx.hypervisors.drivers.put(&object, driver.clone());
    let key = MachineKey { vm: crate::api::name::VmUuid::of("w"), cluster: "lab/c1".into(), name: "m".into() };
    let (place, before) = (ObjectKey::new("lab", "h1"), jiff::SignedDuration::from_mins(case.minutes));
    ctx.hypervisors.inventories.orphans(&place, vec![key.clone()], ctx.management.now() - before);
    let mut said = Vec::new();
    for _ in 0..2 {
        let found = ctx.hypervisors.inventories.orphans(&place, vec![key.clone()], ctx.management.now());
        let says = crate::kinds::hypervisor::orphans::look_after(&ctx, &object, &found).await.unwrap();
        let status = object.status.get_or_insert_default();
        let conditions: Vec<_> = says.iter().cloned().collect();
        status.conditions = crate::domain::conditions::carry_over(&status.conditions, None, &conditions, None, ctx.management.now()).0;
        said.push(says);
    }
    let retired = driver.retired.lock().clone();
    (said, retired)
}

fn is_reported(said: &[Option<Desired>]) -> bool {
    said.iter().all(|said| said.as_ref().is_some_and(|said| said.status == Some(false) && said.message.contains("m (")))
}

#[tokio::test]
async fn a_vm_that_no_machine_asks_for_is_reported_after_one_more_look() {
    let (said, retired) = two_ticks(Orphaned { orphans: "Report", ..orphaned(vec![], 1) }).await;
    assert!(is_reported(&said) && retired.is_empty(), "{said:?} {retired:?}");
}

#[tokio::test]
async fn a_machine_that_the_cache_does_not_hold_keeps_its_vm() {
    for machine in [machine(json!({"image": "w"})), machine(json!(5))] {
        let (said, retired) = two_ticks(orphaned(vec![machine], 1)).await;
        assert_eq!((said, retired), (vec![None, None], vec![]), "asked once, not at every tick");
    }
}

/// The only place where a VM is destroyed although its object does not request that.
#[tokio::test]
async fn a_vm_that_no_machine_asks_for_is_removed_after_an_hour_where_that_is_wanted() {
    let (said, retired) = two_ticks(orphaned(vec![], 2)).await;
    assert!(is_reported(&said), "{said:?}");
    assert_eq!(retired.len(), 2, "one call at each tick, until it is gone");
    assert!(retired.iter().all(|key| key.name == "m"), "{retired:?}");
    let foreign = Observed::Foreign { what: "VM m".into(), is_marked: false };
    for (why, case) in [
        ("too early", Orphaned { minutes: 59, ..orphaned(vec![], 1) }),
        ("its mark names another object by now", Orphaned { vm: foreign, ..orphaned(vec![], 2) }),
        ("it is gone by now", Orphaned { vm: Observed::Absent, ..orphaned(vec![], 2) }),
        ("the WindowsHypervisor goes", Orphaned { deleted: true, ..orphaned(vec![], 1) }),
    ] {
        let (said, retired) = two_ticks(case).await;
        assert!(is_reported(&said) && retired.is_empty(), "{why}: {said:?} {retired:?}");
    }
}

/// After a move or a restore, the VM of a machine is not the one that its UID determines.
#[tokio::test]
async fn no_vm_is_removed_while_a_machine_cannot_be_read() {
    let mut unreadable = machine(json!(5));
    unreadable["metadata"]["uid"] = json!("of the restored object");
    let (said, retired) = two_ticks(orphaned(vec![unreadable], 2)).await;
    assert!(is_reported(&said) && retired.is_empty(), "{said:?} {retired:?}");
    assert!(said.iter().flatten().all(|said| said.message.contains("cannot read WindowsMachine m")), "{said:?}");
}
