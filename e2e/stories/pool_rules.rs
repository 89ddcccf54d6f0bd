//! The rules of the contract for machine pools (`docs/design/cluster-api.md#machine-pools`) that plain growing and shrinking does not show: a pool
//! that is paused, that has no template, whose machine is held back, or for which no controller creates Machines.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::pools::{Pool, names};
use crate::workers::{self, by_capw};
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
/// The hook that keeps Cluster API from continuing the removal of a Machine.
const HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/story";
const DELETE: &str = "cluster.x-k8s.io/delete-machine";
const MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";

#[test]
fn the_rules_of_machine_pools() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("rules")).await;
        let capw = Capw::start(&cp, &[]).await;
        let mut pool = Pool::new("rules", 2, &cp).await;
        pool.labels = json!({"node-role.kubernetes.io/windows": "", "example.com/of-the-template": "yes"});
        pool.apply(&cp).await;
        let machines = pool.wait_settled(&cp).await;
        rule_4_3_machines_are_of_the_template(&cp, &machines).await;
        cores_own_conditions_are_true(&cp, &pool).await;
        rule_4_2_ready_is_never_taken_back(&cp, &pool, &machines).await;
        rule_4_1_what_is_observed_and_paused(&cp, &mut pool).await;
        rule_4_1_a_machine_that_is_held_back_keeps_its_id(&cp, &mut pool).await;
        rule_4_3_without_a_machine_it_waits(&cp, &capw, &mut pool).await;
        rule_4_3_a_long_name(&cp, &pool).await;
        rule_4_3_machines_first_then_the_pool(&cp, &capw, &pool).await;
        assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
        assert!(!cp.core().log().contains("Observed a panic"), "core panicked");
    });
}

/// Core gives a Machine the labels of the MachinePool's template, our WindowsMachine, no Secret, and the MachinePool as owner. The labels for the
/// Node reach the Node.
async fn rule_4_3_machines_are_of_the_template(cp: &ControlPlane, machines: &[Value]) {
    for machine in machines {
        let name = text(machine, "/metadata/name");
        assert_eq!(text(machine, "/metadata/labels/example.com~1of-the-template"), "yes");
        assert_eq!((text(machine, "/spec/infrastructureRef/kind"), text(machine, "/spec/infrastructureRef/name")), ("WindowsMachine", name));
        assert_eq!(text(machine, "/spec/bootstrap/dataSecretName"), "", "{}", machine["spec"]);
        let owner =
            machine["metadata"]["ownerReferences"].as_array().and_then(|owners| owners.iter().find(|o| o["controller"] == json!(true)).cloned());
        assert_eq!(owner.map(|owner| owner["kind"].clone()), Some(json!("MachinePool")));
        let node = text(machine, "/status/nodeRef/name").to_owned();
        cp.wait_object(Kind::NODE, &node, "the role that the Machine has", LIMIT, |node| {
            node.pointer("/metadata/labels/node-role.kubernetes.io~1windows").map(drop)
        })
        .await;
    }
}

/// Checks the conditions that Cluster API itself sets on the MachinePool and its Machines, in the current and the deprecated form.
async fn cores_own_conditions_are_true(cp: &ControlPlane, pool: &Pool) {
    wait_for("every condition of core is as it should be", LIMIT, || async {
        let mut objects = cp.list(Kind::MACHINE, Some("rules")).await;
        objects.extend(cp.get(Kind::MACHINE_POOL, &pool.name()).await);
        let wrong: Vec<String> = objects.iter().flat_map(wrong_conditions).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    })
    .await;
    // Core finds the kind and its list.
    let object = cp.get(Kind::WINDOWS_NODE_POOL, &pool.name()).await.expect("the WindowsNodePool");
    assert_eq!(text(&object, "/status/infrastructureMachineKind"), "WindowsMachine");
    let definition = cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, "windowsmachines.infrastructure.cluster.x-k8s.io").await.expect("the definition");
    assert_eq!(text(&definition, "/spec/names/listKind"), "WindowsMachineList");
    assert_eq!(condition(&object, "Paused").map(|paused| &paused["status"]), Some(&json!("False")), "{:#}", object["status"]);
}

/// Returns the conditions with an unexpected status.
fn wrong_conditions(object: &Value) -> Vec<String> {
    const BAD: [&str; 7] = ["Deleting", "Paused", "Updating", "Remediating", "RollingOut", "ScalingUp", "ScalingDown"];
    let of = |pointer| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = of("/status/conditions");
    assert!(!all.is_empty(), "{} has no conditions", text(object, "/metadata/name"));
    all.extend(of("/status/deprecated/v1beta1/conditions"));
    let wanted = |condition: &Value| if BAD.contains(&text(condition, "/type")) { "False" } else { "True" };
    all.retain(|condition| text(condition, "/status") != wanted(condition));
    all.iter().map(|condition| format!("{}: {condition}", text(object, "/metadata/name"))).collect()
}

/// A pool that cannot continue reports that in its conditions. Both readiness marks stay set, and core keeps following the pool.
async fn rule_4_2_ready_is_never_taken_back(cp: &ControlPlane, pool: &Pool, machines: &[Value]) {
    let missing = json!({"spec": {"template": {"machine": null, "machineTemplateRef": {"name": "nowhere"}}}});
    cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &missing).await.expect("a template that is missing");
    let ready = cp.wait_condition(Kind::WINDOWS_NODE_POOL, &pool.name(), "Ready", "False", LIMIT).await;
    assert!(ready["reason"] == "TemplateMissing" && text(&ready, "/message").contains("\"nowhere\""), "{ready}");
    let object = cp.get(Kind::WINDOWS_NODE_POOL, &pool.name()).await.expect("the WindowsNodePool");
    assert_eq!((&object["status"]["ready"], object.pointer("/status/initialization/provisioned")), (&json!(true), Some(&json!(true))));
    let core = cp.get(Kind::MACHINE_POOL, &pool.name()).await.expect("the MachinePool");
    assert_eq!(core.pointer("/status/initialization/infrastructureProvisioned"), Some(&json!(true)));
    let back = json!({"spec": {"template": {"machineTemplateRef": null, "machine": pool.workers.machine}}});
    cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &back).await.expect("the template");
    assert_eq!(names(&pool.wait_settled(cp).await), names(machines), "a missing template cost a machine");
    step("a missing template takes nothing back");
}

/// `status.replicas` is the observed number, not the desired one. Core's phase shows the difference, with another name when the infrastructure
/// controls the number.
async fn rule_4_1_what_is_observed_and_paused(cp: &ControlPlane, pool: &mut Pool) {
    cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &json!({"spec": {"paused": true}})).await.expect("a pause");
    cp.wait_condition(Kind::WINDOWS_NODE_POOL, &pool.name(), "Paused", "True", LIMIT).await;
    pool.scale(cp, 3).await;
    let phase = async |wanted: &str| {
        cp.wait_object(Kind::MACHINE_POOL, &pool.name(), wanted, LIMIT, |object| (text(object, "/status/phase") == wanted).then_some(())).await;
    };
    phase("ScalingUp").await;
    let managed = |by: Value| json!({"metadata": {"annotations": {MANAGED_BY: by}}});
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &managed(json!("another"))).await.expect("an annotation");
    phase("Scaling").await;
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &managed(json!("false"))).await.expect("an annotation");
    phase("ScalingUp").await;
    let object = cp.get(Kind::WINDOWS_NODE_POOL, &pool.name()).await.expect("the WindowsNodePool");
    let core = cp.get(Kind::MACHINE_POOL, &pool.name()).await.expect("the MachinePool");
    assert_eq!((&object["status"]["replicas"], &core["status"]["replicas"], &core["spec"]["replicas"]), (&json!(2), &json!(2), &json!(3)));
    assert_eq!(pool.windows_machines(cp).await.len(), 2, "a paused pool made a machine");
    cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &json!({"spec": {"paused": false}})).await.expect("no pause");
    pool.wait_settled(cp).await;
    step("paused, and 2 of 3 observed; then 3");
}

/// The ID of a machine whose removal is held back stays listed. Otherwise core would delete its Node before it is drained.
async fn rule_4_1_a_machine_that_is_held_back_keeps_its_id(cp: &ControlPlane, pool: &mut Pool) {
    let machines = pool.wait_settled(cp).await;
    let (victim, id) = (text(&machines[0], "/metadata/name"), machines[0]["spec"]["providerID"].clone());
    let name = pool.workers.name(victim);
    cp.patch(Kind::MACHINE, &name, &json!({"metadata": {"annotations": {HOOK: "", DELETE: ""}}})).await.expect("annotations");
    pool.scale(cp, 2).await;
    cp.wait_condition(Kind::MACHINE, &name, "Deleting", "True", LIMIT).await;
    let listed = |object: &Value| object["spec"]["providerIDList"].as_array().is_some_and(|ids| ids.contains(&id));
    let object = cp
        .wait_object(Kind::WINDOWS_NODE_POOL, &pool.name(), "2 machines that stay", LIMIT, |object| {
            (object["status"]["replicas"] == json!(2)).then(|| object.clone())
        })
        .await;
    assert!(listed(&object), "{victim} is still there, and its ID is not listed: {:#}", object["spec"]);
    assert!(cp.get(Kind::NODE, text(&machines[0], "/status/nodeRef/name")).await.is_some(), "the Node went before its machine");
    cp.patch(Kind::MACHINE, &name, &json!({"metadata": {"annotations": {HOOK: null}}})).await.expect("no hook");
    pool.wait_settled(cp).await;
    cp.wait_object(Kind::WINDOWS_NODE_POOL, &pool.name(), "the ID is no longer listed", LIMIT, |object| (!listed(object)).then_some(())).await;
    step("a machine that is held back keeps its ID and its Node");
}

/// A WindowsMachine without a Machine is not removed: the pool waits until core creates the Machine, and then deletes that.
async fn rule_4_3_without_a_machine_it_waits(cp: &ControlPlane, capw: &Capw, pool: &mut Pool) {
    // The infrastructure controls the number, because MachinePools cannot be changed while core does not answer.
    cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &json!({"spec": {"replicas": 2}})).await.expect("a number");
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &json!({"metadata": {"annotations": {MANAGED_BY: "us"}}})).await.expect("an annotation");
    let before = names(&pool.wait_settled(cp).await);
    let core = cp.core();
    core.freeze();
    let mark = cp.audit_mark();
    let scale = async |replicas: i32| {
        cp.patch(Kind::WINDOWS_NODE_POOL, &pool.name(), &json!({"spec": {"replicas": replicas}})).await.expect("a number");
    };
    scale(4).await;
    wait_for("two more WindowsMachines", LIMIT, || async {
        let found = names(&pool.windows_machines(cp).await);
        if found.len() == 4 { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    scale(2).await;
    // A reconcile ends with a write to the MachinePool, which fails now. After two failures, at least one reconcile saw the new number.
    let passes = |outcome: &str| capw.metric("capw_reconciles_total", &["controller=\"windowsnodepool\"", outcome]);
    let failed = || passes("") - passes("outcome=\"done\"") - passes("outcome=\"requeue\"");
    assert!(passes("outcome=\"requeue\"") > 0.0, "no pass is counted; is capw_reconciles_total still the metric's name?");
    let start = failed();
    wait_for("the pool is checked again", LIMIT, || async {
        let now = failed();
        if now >= start + 2.0 { Ok(()) } else { Err(format!("{now} failed passes, {start} before")) }
    })
    .await;
    let found = pool.windows_machines(cp).await;
    let leaving: Vec<&Value> = found.iter().filter(|machine| !text(machine, "/metadata/deletionTimestamp").is_empty()).collect();
    assert!(found.len() == 4 && leaving.is_empty(), "removed without a Machine: {leaving:#?}");
    core.thaw();
    pool.workers.replicas = 2;
    // Core does not know the two new machines yet, and all machines that it knows are settled.
    wait_for("the two more are removed", LIMIT, || async {
        let found = names(&pool.windows_machines(cp).await);
        if found == before { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    assert_eq!(names(&pool.wait_settled(cp).await), before, "the two that were there before stay");
    let over_the_head: Vec<_> = cp
        .audit_since(mark)
        .into_iter()
        .filter(|event| by_capw(event) && (event.verb.as_str(), event.resource.as_str()) == ("delete", "windowsmachines"))
        .collect();
    assert!(over_the_head.is_empty(), "{over_the_head:#?}");
    cp.wait_object(Kind::MACHINE_POOL, &pool.name(), "told of 2", LIMIT, |object| (object["spec"]["replicas"] == json!(2)).then_some(())).await;
    cp.patch(Kind::MACHINE_POOL, &pool.name(), &json!({"metadata": {"annotations": {MANAGED_BY: null}}})).await.expect("no annotation");
    step("without a Machine nothing is removed");
}

/// Core finds the machines of a MachinePool whose name is too long for a label by a hash that both sides compute.
async fn rule_4_3_a_long_name(cp: &ControlPlane, pool: &Pool) {
    let long = "windows-".repeat(9) + "pool";
    let mut objects = pool.objects();
    for object in &mut objects {
        object["metadata"]["name"] = json!(long);
    }
    objects[2]["spec"]["replicas"] = json!(1);
    for named in ["bootstrap/configRef", "infrastructureRef"] {
        *objects[2].pointer_mut(&format!("/spec/template/spec/{named}/name")).expect("a reference") = json!(long);
    }
    cp.apply_objects(&objects).await;
    let name = pool.workers.name(&long);
    let refs = |object: &Value| object.pointer("/status/nodeRefs").and_then(Value::as_array).is_some_and(|nodes| nodes.len() == 1).then_some(());
    cp.wait_object(Kind::MACHINE_POOL, &name, "a Node", LIMIT, refs).await;
    let machines = cp.list(Kind::MACHINE, Some("rules")).await;
    let hashed = machines.iter().filter(|machine| text(machine, "/metadata/labels/cluster.x-k8s.io~1pool-name").starts_with("hash_")).count();
    assert_eq!(hashed, 1, "{:?}", names(&machines));
    cp.delete(Kind::MACHINE_POOL, &name).await;
    cp.wait_gone(Kind::WINDOWS_NODE_POOL, &name, LIMIT).await;
    step("a pool with a long name has its machine");
}

/// When a MachinePool is deleted, its Machines are drained and deleted first. A Machine that is held back keeps the pool. At the end nothing is left.
async fn rule_4_3_machines_first_then_the_pool(cp: &ControlPlane, capw: &Capw, pool: &Pool) {
    let machines = pool.wait_settled(cp).await;
    let held = text(&machines[0], "/metadata/name");
    cp.patch(Kind::MACHINE, &pool.workers.name(held), &json!({"metadata": {"annotations": {HOOK: ""}}})).await.expect("an annotation");
    let mark = cp.audit_mark();
    cp.delete(Kind::MACHINE_POOL, &pool.name()).await;
    wait_for("only the machine that is held back is left", LIMIT, || async {
        let left = names(&pool.windows_machines(cp).await);
        if left == BTreeSet::from([held.to_owned()]) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    cp.wait_condition(Kind::WINDOWS_NODE_POOL, &pool.name(), "Deleting", "True", LIMIT).await;
    assert_eq!(simulated_vms(capw.state()).len(), 1, "a machine that is held back lost its VM");
    cp.patch(Kind::MACHINE, &pool.workers.name(held), &json!({"metadata": {"annotations": {HOOK: null}}})).await.expect("no hook");
    cp.wait_gone(Kind::MACHINE_POOL, &pool.name(), LIMIT).await;
    cp.wait_gone(Kind::WINDOWS_NODE_POOL, &pool.name(), LIMIT).await;
    workers::wait_nothing_left(cp, capw, LIMIT).await;
    let events = cp.audit_since(mark);
    let deleted = |resource: &str| -> BTreeSet<String> {
        let deletes = events.iter().filter(|event| by_capw(event) && event.verb == "delete" && event.resource == resource && event.code < 300);
        deletes.map(|event| event.name.clone()).collect()
    };
    assert_eq!((deleted("machines"), deleted("windowsmachines")), (names(&machines), BTreeSet::new()), "each by its Machine");
    step("the pool went after its machines");
}
