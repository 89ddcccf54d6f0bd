//! Configurations that have lost their owner.

use crate::kinds::pool::reconcile::tests::*;

const CONFIG: &str = "/apis/bootstrap.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsbootstrapconfigs/win-abc12";

/// The configuration of the machine `win-abc12`, with these owner references.
fn config(owners: Value) -> Value {
    json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-abc12", "namespace": "lab", "uid": "c", "resourceVersion": "5", "labels": {POOL_LABEL: "win"}, "ownerReferences": owners},
        "spec": {}})
}

/// The owner references after they were removed, and after a restore, in which every object gets another UID.
fn lost() -> [Value; 2] {
    let before = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "name": "win-abc12", "uid": "before"});
    [json!([]), json!([before])]
}

fn going() -> Value {
    json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]})
}

/// Otherwise the configuration would stay when its machine is deleted, and the pool would wait for it without end.
#[tokio::test]
async fn configurations_get_their_machine_back_whatever_the_state_of_the_pool() {
    let current = Template { machine: read(json!({"image": "w"})), bootstrap: None, version: Some("v1.36.3".into()) }.hash();
    let marked = |hash: &str| json!({"labels": {POOL_LABEL: "win", TEMPLATE_LABEL: hash}});
    let missing = json!({"spec": {"template": {"machine": null, "machineTemplateRef": {"name": "missing"}}}});
    let pool_goes = json!({"metadata": going()});
    for (what, of_machine, of_pool) in [
        ("a machine that is up to date", marked(&current), json!({})),
        ("one that is not", marked("old"), json!({})),
        ("one that is going", json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {POOL_LABEL: "win"}}), json!({})),
        ("one that has lost the pool, too", json!({"ownerReferences": null, "labels": {POOL_LABEL: "win"}}), json!({})),
        ("the template is missing", marked(&current), missing),
        ("the pool goes", marked(&current), pool_goes.clone()),
    ] {
        for owners in lost() {
            let (mut own, mut wanted) = (machine("win-abc12", "pool-uid"), pool());
            json_patch::merge(&mut own["metadata"], &of_machine);
            json_patch::merge(&mut wanted, &of_pool);
            let delete = step(&format!("DELETE {MACHINES}/win-abc12"), own.clone());
            let patch = step(&format!("PATCH {CONFIG}"), config(owners.clone()));
            let caches = Caches { windows_machines: holding(vec![own]), configs: holding(vec![config(owners)]), ..Caches::empty() };
            let steps = if of_pool == pool_goes { vec![delete, step(STATUS, pool()), patch] } else { vec![patch] };
            let (ctx, script) = stage_of(caches, 1, steps);
            reconcile(Arc::new(read(wanted)), ctx).await.expect(what);
            let metadata = script.seen().last().unwrap().body["metadata"].clone();
            assert_eq!((&metadata["resourceVersion"], metadata["ownerReferences"].as_array().unwrap().len()), (&json!("5"), 1), "{what}");
            assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-win-abc12", "{what}");
        }
    }
}

/// The watch does not show the configuration without its owner.
#[tokio::test]
async fn a_configuration_that_is_found_without_its_owner_is_taken_back() {
    let bootstrap = json!({"windowsRelease": "2022"});
    let template = Template { machine: read(json!({"image": "w"})), bootstrap: Some(read(bootstrap.clone())), version: Some("v1.36.3".into()) };
    for owners in lost() {
        let (mut own, mut wanted) = (machine("win-abc12", "pool-uid"), pool());
        own["metadata"]["labels"] = json!({POOL_LABEL: "win", TEMPLATE_LABEL: template.hash()});
        wanted["spec"]["template"]["bootstrap"] = bootstrap.clone();
        let caches = Caches { windows_machines: holding(vec![own]), ..Caches::empty() };
        let all = CONFIG.strip_suffix("/win-abc12").unwrap();
        let (ctx, script) = stage_of(
            caches,
            1,
            vec![
                refuse(&format!("POST {all}"), 409, "AlreadyExists"),
                step(&format!("GET {CONFIG}"), config(owners.clone())),
                step(&format!("PATCH {CONFIG}"), config(owners)),
            ],
        );
        reconcile(Arc::new(read(wanted)), ctx).await.expect("it is taken back");
        assert_eq!(script.seen()[2].body["metadata"]["ownerReferences"][0]["uid"], "uid-win-abc12");
    }
}

/// The machine was deleted before its configuration had an owner again.
#[tokio::test]
async fn a_configuration_without_owner_goes_when_its_machine_is_gone() {
    let gone = || refuse(&format!("GET {MACHINES}/win-abc12"), 404, "NotFound");
    let (get, delete) =
        (format!("GET {CONFIG}"), step(&format!("DELETE {CONFIG}"), json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})));
    let owned = config(json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]));
    let mut other = config(json!([]));
    other["metadata"]["uid"] = json!("another");
    let mut missing = pool();
    json_patch::merge(&mut missing, &json!({"spec": {"template": {"machine": null, "machineTemplateRef": {"name": "missing"}}}}));
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    for (what, looks, is_deleted) in [
        ("neither owner nor machine", vec![gone(), step(&get, config(json!([]))), delete], true),
        ("a machine that the cache does not show", vec![step(&format!("GET {MACHINES}/win-abc12"), machine("win-abc12", "pool-uid"))], false),
        ("an owner by now", vec![gone(), step(&get, owned)], false),
        ("another object by now", vec![gone(), step(&get, other)], false),
        ("gone by now", vec![gone(), refuse(&get, 404, "NotFound")], false),
    ] {
        let caches = Caches { configs: holding(vec![config(json!([]))]), ..Caches::empty() };
        let rest = if is_deleted { vec![] } else { vec![step(STATUS, pool()), event()] };
        let (ctx, script) = stage_of(caches, 1, looks.into_iter().chain(rest).collect());
        reconcile(Arc::new(read(missing.clone())), ctx).await.expect(what);
        if is_deleted {
            let preconditions = &script.seen()[2].body["preconditions"];
            assert_eq!(preconditions, &json!({"uid": "c", "resourceVersion": "5"}));
        }
    }
}

#[tokio::test]
async fn a_pool_that_goes_waits_for_configurations_of_its_machines_and_for_no_copy() {
    const POOL: &str = "PATCH /apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/lab/windowsnodepools/win";
    let mut leaving = pool();
    json_patch::merge(&mut leaving["metadata"], &going());
    let of_machine = lost()[1].clone();
    let mut copy = config(json!([]));
    copy["metadata"]["name"] = json!("my-copy");
    let stage_with = |config: Value, steps| stage_of(Caches { configs: holding(vec![config]), ..Caches::empty() }, 1, steps);
    let (ctx, script) = stage_with(config(of_machine), vec![step(STATUS, pool())]);
    reconcile(Arc::new(read(leaving.clone())), ctx).await.expect("it waits");
    assert!(script.seen()[0].body["status"].to_string().contains("0 machines and 1 bootstrap configurations"), "{:?}", script.seen());
    let (ctx, script) = stage_with(copy, vec![step(POOL, pool())]);
    reconcile(Arc::new(read(leaving)), ctx).await.expect("it goes");
    assert_eq!(script.seen()[0].body["metadata"]["finalizers"], json!([]));
}
