use serde_json::{Value, json};

use super::*;
use crate::cluster::mock::{Script, step};
use crate::controllers::testing::{Empty, holding_unreadable, read, shared};
use crate::lifecycle::identity::HYPERVISOR_ANNOTATION;

const OBJECT: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowshypervisors/h1";
const STATUS: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowshypervisors/h1/status";

fn hypervisor(finalizers: &[&str], deleted: bool) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
        "metadata": {"name": "h1", "namespace": "lab", "uid": "h", "resourceVersion": "1", "finalizers": finalizers,
            "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z")},
        "spec": {}})
}

/// A status that reports a failure comes with an event for each of its two conditions.
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
    assert_eq!(outcome, Outcome::look_again(std::time::Duration::from_secs(1)));
    let conditions = &script.seen()[0].body["status"]["conditions"];
    assert!(conditions.as_array().unwrap().iter().any(|c| c["type"] == "Reachable" && c["reason"] == "InvalidSpec"), "{conditions}");
    let key = ObjectKey::new("lab", "h1");
    assert!(matches!(ctx.hypervisors.inventories.reach(&key), Reach::Unreachable(_)));
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
    // It is not described at each look, and stays unfit until it is.
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

/// Another process reports about it; machines that this one looks after may be there.
#[tokio::test]
async fn one_that_the_watch_filter_does_not_select_is_looked_at_and_never_written() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let ctx = shared.hypervisor(&Selection { watch_filter: Some("a".into()), ..Selection::default() });
    for deleted in [false, true] {
        assert_ne!(pass(&ctx, hypervisor(&[], deleted)).await, Outcome::done(), "it is looked at again");
    }
    assert!(matches!(ctx.hypervisors.inventories.reach(&ObjectKey::new("lab", "h1")), Reach::Unreachable(_)));
}

const MACHINES: &str = "GET /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsmachines";

/// A VM that was seen without a machine an hour and more ago, and a tick later: what is said each time.
async fn after_an_hour(machines: Vec<Value>, lists: usize) -> Vec<Option<crate::api::condition::Desired>> {
    let list = || json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineList", "metadata": {}, "items": machines});
    let exchanges = std::iter::repeat_with(|| step(MACHINES, list())).take(lists).collect();
    let (shared, _script) = shared(Caches::empty(), 1, exchanges);
    let ctx = shared.hypervisor(&Selection::default());
    let key = MachineKey { vm: crate::api::name::VmUuid::of("w"), cluster: "lab/c1".into(), name: "m".into() };
    let (place, hour) = (ObjectKey::new("lab", "h1"), jiff::SignedDuration::from_hours(1));
    ctx.hypervisors.inventories.orphans(&place, vec![key.clone()], ctx.management.now() - hour);
    let mut object: WindowsHypervisor = read(hypervisor(&[FINALIZER], false));
    let mut said = Vec::new();
    for _ in 0..2 {
        let found = ctx.hypervisors.inventories.orphans(&place, vec![key.clone()], ctx.management.now());
        let says = super::orphans::look_after(&ctx, &object, &found).await.unwrap();
        let status = object.status.get_or_insert_default();
        let conditions: Vec<_> = says.iter().cloned().collect();
        status.conditions = crate::lifecycle::conditions::conditions(&status.conditions, &conditions, None, ctx.management.now());
        said.push(says);
    }
    said
}

#[tokio::test]
async fn a_vm_that_no_machine_asks_for_is_reported_after_one_more_look() {
    let said = after_an_hour(vec![], 1).await;
    assert!(said.iter().all(|said| said.as_ref().is_some_and(|said| said.status == Some(false) && said.message.contains("m ("))), "{said:?}");
}

#[tokio::test]
async fn a_machine_that_the_cache_does_not_hold_keeps_its_vm() {
    let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "m", "namespace": "lab", "uid": "w"}, "spec": {"image": "w"}});
    assert_eq!(after_an_hour(vec![machine], 1).await, [None, None], "asked once, not at every tick");
}
