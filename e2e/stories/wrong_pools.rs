//! Story *bad input* for pools: objects that the schema accepts and that are wrong. Each reports that in a condition of the WindowsNodePool. None
//! costs an existing machine, none is written repeatedly, and all of them can be deleted.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::pools::{Pool, names};
use crate::workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "wrong-pools";
/// The reconciles that a stuck pool may cost while another pool grows: a fixed number, and one per this many seconds.
const PASSES_EACH: f64 = 6.0;
const SECONDS_EACH: f64 = 10.0;

/// A pool: the patches for the specs of its MachinePool and its WindowsNodePool, and the report of the WindowsNodePool.
struct Case {
    name: &'static str,
    machine_pool: &'static str,
    node_pool: &'static str,
    reason: &'static str,
    says: &'static [&'static str],
}

const fn case(name: &'static str, machine_pool: &'static str, node_pool: &'static str, reason: &'static str, says: &'static [&'static str]) -> Case {
    Case { name, machine_pool, node_pool, reason, says }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("no-template", "{}", r#"{"template": {"machine": null, "machineTemplateRef": {"name": "nowhere"}}}"#, "TemplateMissing", &["spec.template.machineTemplateRef.name", "WindowsMachineTemplate \"nowhere\""]),
    case("no-bootstrap", "{}", r#"{"template": {"bootstrapTemplateRef": {"name": "nowhere"}}}"#, "TemplateMissing", &["spec.template.bootstrapTemplateRef.name", "WindowsBootstrapConfigTemplate \"nowhere\""]),
    case("no-config", r#"{"template": {"spec": {"bootstrap": {"configRef": {"name": "nowhere"}}}}}"#, "{}", "TemplateMissing", &["MachinePool no-config: spec.template.spec.bootstrap.configRef.name", "\"nowhere\""]),
    case("for-others", r#"{"template": {"spec": {"bootstrap": {"configRef": {"kind": "WindowsBootstrapConfigTemplate"}}}}}"#, "{}", "InvalidSpec", &["configRef.kind", "WindowsBootstrapConfigTemplate", "name a WindowsBootstrapConfig"]),
    case("no-version", r#"{"template": {"spec": {"version": null}}}"#, "{}", "InvalidSpec", &["spec.template.spec.version", "e.g. v1.36.3"]),
    case("old-version", r#"{"template": {"spec": {"version": "v1.20.0"}}}"#, "{}", "MachinesFailed", &["0 of 1 machines", "(Incompatible)", "Fix the reported causes"]),
    case("no-image", "{}", r#"{"template": {"machine": {"image": "windows-nt-4"}}}"#, "MachinesFailed", &["0 of 1 machines", "(ImageMissing)", "Fix the reported causes"]),
    case("far-domain", "{}", r#"{"failureDomains": ["mars"]}"#, "MachinesFailed", &["0 of 1 machines", "(HypervisorMissing)", "Fix the reported causes"]),
    case("huge", r#"{"replicas": 2000000000}"#, "{}", "InvalidSpec", &["MachinePool huge: spec.replicas is 2000000000", "0 to 10000"]),
    case("no-room", r#"{"replicas": 5}"#, r#"{"template": {"machine": {"hypervisorRef": {"name": "tiny"}}}}"#, "NoCapacity", &["2 of 5 machines are available", "room on their hypervisor"]),
];

#[test]
fn wrong_pools_say_so_and_lose_nothing() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("wrong-pools")).await;
        let capw = Capw::start(&cp, &[]).await;
        let process = capw.process().id();
        let mut good = Pool::new(NAMESPACE, 2, &cp).await;
        good.workers.machine["hypervisorRef"] = json!({"name": "lab"});
        good.apply(&cp).await;
        let tiny = json!({
            "apiVersion": Kind::WINDOWS_HYPERVISOR.api_version, "kind": "WindowsHypervisor", "metadata": {"name": "tiny", "namespace": NAMESPACE},
            "spec": {"simulated": {"capacity": {"cpus": 8, "memory": "64Gi"}}},
        });
        cp.apply_objects(&[tiny]).await;
        good.workers.admit(&cp, "tiny").await;
        machines_of(&cp, "pool", 2).await;
        step("a good pool has its two machines");

        let objects: Vec<Value> = CASES.iter().flat_map(|case| objects(&good, case)).collect();
        cp.apply_objects(&objects).await;
        for case in CASES {
            says(&cp, case.name, case.reason, case.says).await;
        }
        step("every wrong pool says what is wrong with it");
        a_good_pool_loses_nothing(&cp, &good).await;
        a_machine_that_only_looks_like_one_of_the_pool(&cp, &good).await;
        let vms = simulated_vms(capw.state()).into_iter().filter(|vm| vm.name.starts_with("no-room-")).count();
        assert_eq!(vms, 2, "what fits, and nothing else");
        let kept = names(&machines_of(&cp, "pool", 2).await);
        silent(&cp, &capw, &mut good).await;
        assert!(names(&machines_of(&cp, "pool", 3).await).is_superset(&kept), "{kept:?}");
        no_quota(&cp, &capw).await;

        assert_eq!(capw.process().id(), process, "the process ended and was started again");
        assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
        for namespace in [NAMESPACE, "quota"] {
            cp.delete(Kind::CLUSTER, &format!("{namespace}/c1")).await;
        }
        for namespace in [NAMESPACE, "quota"] {
            cp.wait_gone(Kind::CLUSTER, &format!("{namespace}/c1"), LIMIT).await;
        }
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        for kind in [Kind::WINDOWS_NODE_POOL, Kind::WINDOWS_MACHINE] {
            let left = names(&cp.list(kind, None).await);
            assert!(left.is_empty(), "{} {left:?}", kind.plural);
        }
    });
}

/// Returns a broken copy of the good pool, with another name and one machine.
fn objects(good: &Pool, case: &Case) -> [Value; 3] {
    let parsed = |patch: &str| json!({"spec": serde_json::from_str::<Value>(patch).unwrap_or_else(|e| panic!("{patch}: {e}"))});
    let [mut config, mut node_pool, mut machine_pool] = good.objects();
    for object in [&mut config, &mut node_pool, &mut machine_pool] {
        object["metadata"]["name"] = json!(case.name);
    }
    machine_pool["spec"]["replicas"] = json!(1);
    for reference in ["bootstrap/configRef", "infrastructureRef"] {
        *machine_pool.pointer_mut(&format!("/spec/template/spec/{reference}/name")).expect("a reference") = json!(case.name);
    }
    json_patch::merge(&mut machine_pool, &parsed(case.machine_pool));
    json_patch::merge(&mut node_pool, &parsed(case.node_pool));
    [config, node_pool, machine_pool]
}

/// Waits until the condition Ready of a WindowsNodePool has this reason and these parts in its message.
async fn says(cp: &ControlPlane, name: &str, reason: &str, parts: &[&str]) {
    wait_for(&format!("{name} says {reason} {parts:?}"), LIMIT, || async {
        let pool = cp.get(Kind::WINDOWS_NODE_POOL, &format!("{NAMESPACE}/{name}")).await.ok_or("no pool")?;
        let ready = condition(&pool, "Ready").cloned().unwrap_or_default();
        let right = ready["status"] == "False" && ready["reason"] == reason && parts.iter().all(|part| text(&ready, "/message").contains(part));
        if right { Ok(()) } else { Err(format!("{:#}", pool["status"])) }
    })
    .await;
}

/// Waits until the MachinePool has this number of Machines, all Running. Returns them.
async fn machines_of(cp: &ControlPlane, pool: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} machines of {pool} are Running"), LIMIT, || async {
        let mut machines = cp.list(Kind::MACHINE, Some(NAMESPACE)).await;
        machines.retain(|machine| text(machine, "/metadata/labels/cluster.x-k8s.io~1pool-name") == pool);
        let running = machines.iter().filter(|machine| text(machine, "/status/phase") == "Running").count();
        if (machines.len(), running) == (count, count) { Ok(machines) } else { Err(format!("{running} of {}", machines.len())) }
    })
    .await
}

/// The good pool is broken and fixed again: it reports the problem, and keeps its machines.
async fn a_good_pool_loses_nothing(cp: &ControlPlane, good: &Pool) {
    let before = names(&machines_of(cp, "pool", 2).await);
    let mark = cp.audit_mark();
    let negative = cp.patch(Kind::MACHINE_POOL, &good.name(), &json!({"spec": {"replicas": -5}})).await.expect_err("a negative number").to_string();
    assert!(negative.contains("spec.replicas") && negative.contains("non-negative"), "{negative}");
    let right = json!({"spec": {"template": {"machineTemplateRef": null, "machine": good.workers.machine}}});
    for (kind, wrong, reason, parts, back) in [
        (Kind::MACHINE_POOL, json!({"spec": {"replicas": 10_001}}), "InvalidSpec", "spec.replicas is 10001", json!({"spec": {"replicas": 2}})),
        (
            Kind::WINDOWS_NODE_POOL,
            json!({"spec": {"template": {"machine": null, "machineTemplateRef": {"name": "nowhere"}}}}),
            "TemplateMissing",
            "\"nowhere\"",
            right,
        ),
    ] {
        cp.patch(kind, &good.name(), &wrong).await.unwrap_or_else(|e| panic!("{wrong}: {e}"));
        says(cp, "pool", reason, &[parts]).await;
        cp.patch(kind, &good.name(), &back).await.expect("set right");
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, &good.name(), "Ready", "True", LIMIT).await;
    }
    assert_eq!(names(&machines_of(cp, "pool", 2).await), before);
    let removed: Vec<String> =
        cp.audit_since(mark).into_iter().filter(|e| e.user == Capw::USER && e.verb == "delete" && before.contains(&e.name)).map(|e| e.uri).collect();
    assert!(removed.is_empty(), "{removed:?}");
    step("a good pool that is made wrong keeps its machines");
}

/// A WindowsMachine of another owner with the labels of a pool is neither counted nor touched.
async fn a_machine_that_only_looks_like_one_of_the_pool(cp: &ControlPlane, good: &Pool) {
    let own = names(&machines_of(cp, "pool", 2).await);
    let template = cp.get(Kind::WINDOWS_MACHINE, &good.workers.name(own.first().expect("a machine"))).await.expect("a WindowsMachine");
    let mut labels = template["metadata"]["labels"].clone();
    // Without this label, Cluster API leaves the object alone too.
    json_patch::merge(&mut labels, &json!({"cluster.x-k8s.io/pool-name": null}));
    let foreign = json!({
        "apiVersion": Kind::WINDOWS_MACHINE.api_version, "kind": "WindowsMachine",
        "metadata": {"name": "foreign", "namespace": NAMESPACE, "labels": labels}, "spec": good.workers.machine,
    });
    cp.apply_objects(&[foreign]).await;
    cp.patch(Kind::MACHINE_POOL, &good.name(), &json!({"spec": {"replicas": 1}})).await.expect("a number");
    machines_of(cp, "pool", 1).await;
    cp.patch(Kind::MACHINE_POOL, &good.name(), &json!({"spec": {"replicas": 2}})).await.expect("a number");
    machines_of(cp, "pool", 2).await;
    let pool = cp
        .wait_object(Kind::WINDOWS_NODE_POOL, &good.name(), "2 machines", LIMIT, |pool| {
            (pool["status"]["readyReplicas"] == json!(2)).then(|| pool.clone())
        })
        .await;
    assert_eq!(pool["status"]["replicas"], json!(2), "{:#}", pool["status"]);
    let foreign = cp.get(Kind::WINDOWS_MACHINE, &good.workers.name("foreign")).await.expect("it is still there");
    assert!(foreign["metadata"].get("finalizers").is_none() && foreign["status"].is_null(), "{foreign:#}");
    cp.delete(Kind::WINDOWS_MACHINE, &good.workers.name("foreign")).await;
    step("a machine with the labels of a pool is not one of the pool");
}

/// While the good pool grows, CAPW writes nothing about the wrong pools and rarely reconciles them.
async fn silent(cp: &ControlPlane, capw: &Capw, good: &mut Pool) {
    let (mark, begun) = (cp.audit_mark(), Instant::now());
    let passes = || capw.metric("capw_reconciles_total", &["controller=\"windowsnodepool\""]);
    let start = passes();
    good.scale(cp, 3).await;
    machines_of(cp, "pool", 3).await;
    let writes: Vec<String> = cp
        .audit_since(mark)
        .into_iter()
        .filter(|event| event.is_write() && event.user == Capw::USER && event.resource == "windowsnodepools" && event.name != "pool")
        .map(|event| format!("{} {} {}", event.verb, event.uri, event.code))
        .collect();
    assert!(writes.is_empty(), "written about what has not changed:\n{}", writes.join("\n"));
    let passes = passes() - start;
    let most = (CASES.len() + 1) as f64 * (PASSES_EACH + begun.elapsed().as_secs_f64() / SECONDS_EACH);
    assert!(passes > 0.0 && passes <= most, "{passes} passes over {} pools", CASES.len() + 1);
    step(format!("the good pool grew; {passes} passes over {} pools meanwhile", CASES.len() + 1));
}

/// A ResourceQuota allows fewer machines than desired. CAPW creates as many as fit, the pool names the quota, retries rarely, and continues when
/// there is room.
async fn no_quota(cp: &ControlPlane, capw: &Capw) {
    const COUNTED: &str = "count/windowsmachines.infrastructure.cluster.x-k8s.io";
    let pool = Pool::new("quota", 4, cp).await;
    let quota = |most: i32| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few-machines", "namespace": "quota"},
            "spec": {"hard": {COUNTED: most.to_string()}},
        })
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quota"}});
    cp.apply_objects(&[namespace, quota(2)]).await;
    // The quota takes effect once its controller has processed it.
    cp.wait_object(Kind::new("v1", "resourcequotas"), "quota/few-machines", "it is in force", LIMIT, |quota| {
        (quota["status"]["hard"][COUNTED] == "2").then_some(())
    })
    .await;
    let begun = Instant::now();
    pool.apply(cp).await;
    let ready = cp
        .wait_object(Kind::WINDOWS_NODE_POOL, &pool.name(), "the quota", LIMIT, |pool| {
            condition(pool, "Ready").filter(|ready| ready["reason"] == "MachinesRefused").cloned()
        })
        .await;
    for part in ["exceeded quota: few-machines", COUNTED, "raise the ResourceQuota"] {
        assert!(text(&ready, "/message").contains(part), "{ready}");
    }
    let two = Pool { workers: workers::Workers { replicas: 2, ..pool.workers.clone() }, spec: json!({}), labels: json!({}) };
    let before = names(&two.workers.wait_settled(cp, cp, LIMIT).await);
    // A refused machine refuses its whole batch. CAPW retries after half a minute, not at every event.
    let refused = cp.audit().into_iter().filter(|e| e.user == Capw::USER && e.verb == "create" && e.code == 403 && e.namespace == "quota").count();
    let most = 12 + begun.elapsed().as_secs() / 30;
    assert!((1..=most).contains(&(refused as u64)), "{refused} refused requests, at most {most} expected");
    cp.apply_objects(&[quota(10)]).await;
    let after = names(&pool.wait_settled(cp).await);
    assert!(after.is_superset(&before), "{before:?} {after:?}");
    assert!(!capw.log().contains("panicked"));
    step(format!("a quota of two held four machines up; {refused} requests were refused"));
}
