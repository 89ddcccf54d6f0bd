//! Story *bad input*, second half: objects that the schema accepts and that are wrong. Each reports that in a condition. The operator does not
//! panic, spin or write repeatedly, and all of the objects can be deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for};
use crate::wrong_objects::{CONTROL_PLANES, MACHINES, ORPHANS};

/// The limit until all objects report their problem, and until all are deleted.
const LIMIT: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "wrong";
/// The reconciles that a stuck object may cost while another machine becomes a node: a fixed number, and one per this many seconds.
const PASSES_EACH: f64 = 3.0;
const SECONDS_EACH: f64 = 10.0;

#[test]
fn wrong_objects_say_so_and_cost_nothing() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("wrong")).await;
        let capw = Capw::start(&cp, &[]).await;
        let process = capw.process().id();
        let good = Workers { replicas: 0, ..Workers::new(NAMESPACE, &cp).await };
        good.apply(&cp).await;
        let tiny = json!({
            "apiVersion": Kind::WINDOWS_HYPERVISOR.api_version, "kind": "WindowsHypervisor", "metadata": own("tiny"),
            "spec": {"simulated": {"capacity": {"cpus": 8, "memory": "16Gi"}}},
        });
        cp.apply_objects(&[tiny]).await;
        good.admit(&cp, "tiny").await;
        cp.wait_condition(Kind::CLUSTER, "wrong/c1", "Available", "True", LIMIT).await;

        let objects: Vec<Value> = machines(&good).into_iter().chain(control_planes(&good)).chain(orphans()).collect();
        cp.apply_objects(&objects).await;
        all_say_it(&cp).await;
        step("every wrong object says what is wrong with it");
        the_rest_goes_on(&cp, &capw, good).await;

        assert_eq!(capw.process().id(), process, "the process ended and was started again");
        assert!(matches!(capw.health("/livez"), Ok((200, _))), "{:?}", capw.health("/livez"));
        assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
        assert!(!cp.directory().join("executed").exists(), "a kubeconfig made capw run a program");
        everything_can_be_deleted(&cp, &capw).await;
    });
}

fn own(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE})
}

fn parsed(patch: &str) -> Value {
    serde_json::from_str(patch).unwrap_or_else(|e| panic!("{patch}: {e}"))
}

/// Returns Machine, WindowsMachine and WindowsBootstrapConfig of each case, created by hand and changed.
fn machines(good: &Workers) -> Vec<Value> {
    let mut objects = Vec::new();
    for case in MACHINES {
        let mut machine = json!({
            "apiVersion": Kind::MACHINE.api_version, "kind": "Machine", "metadata": own(case.name),
            "spec": {
                "clusterName": "c1", "version": good.version,
                "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "WindowsBootstrapConfig", "name": case.name}},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": case.name},
            },
        });
        json_patch::merge(&mut machine, &parsed(case.machine));
        let mut windows = json!({
            "apiVersion": Kind::WINDOWS_MACHINE.api_version, "kind": "WindowsMachine", "metadata": own(case.name),
            "spec": {"image": "windows-server-2022", "hypervisorRef": {"name": "lab"}},
        });
        json_patch::merge(&mut windows, &json!({"spec": parsed(case.windows_machine)}));
        let mut bootstrap = json!({
            "apiVersion": Kind::WINDOWS_BOOTSTRAP_CONFIG.api_version, "kind": "WindowsBootstrapConfig", "metadata": own(case.name), "spec": {},
        });
        json_patch::merge(&mut bootstrap, &json!({"spec": parsed(case.bootstrap)}));
        if case.name == "payload" {
            bootstrap["spec"]["files"] = json!([{"path": "C:\\k\\a", "content": noise(0)}, {"path": "C:\\k\\b", "content": noise(1)}]);
        }
        // A Machine that names its own Secret has no WindowsBootstrapConfig.
        let configured = machine.pointer("/spec/bootstrap/configRef").is_some();
        objects.extend(configured.then_some(bootstrap));
        objects.extend([windows, machine]);
    }
    // Secrets that already exist with the wrong content or owner.
    objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": own("secret-taken"), "stringData": {"value": "another owner's"}}));
    objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": own("no-value"), "stringData": {"other": "x"}}));
    objects
}

/// Returns 600,000 letters that do not compress below three quarters of their size.
fn noise(seed: u32) -> String {
    let bytes: Vec<u8> = (0u32..14_063).flat_map(|index| Sha256::digest([seed.to_le_bytes(), index.to_le_bytes()].concat())).collect();
    STANDARD.encode(bytes).chars().take(600_000).collect()
}

/// Returns Cluster, ExternalControlPlane and kubeconfig of each case.
fn control_planes(good: &Workers) -> Vec<Value> {
    let mut objects = Vec::new();
    for case in CONTROL_PLANES {
        objects.push(json!({
            "apiVersion": Kind::CLUSTER.api_version, "kind": "Cluster", "metadata": own(case.name),
            "spec": {"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "ExternalControlPlane", "name": case.name}},
        }));
        objects.push(json!({
            "apiVersion": Kind::EXTERNAL_CONTROL_PLANE.api_version, "kind": "ExternalControlPlane", "metadata": own(case.name),
            "spec": parsed(case.spec),
        }));
        let mut kubeconfig: Value = serde_saphyr::from_str(&good.kubeconfig).expect("a kubeconfig");
        json_patch::merge(kubeconfig.pointer_mut("/clusters/0/cluster").expect("a cluster"), &parsed(case.cluster));
        json_patch::merge(kubeconfig.pointer_mut("/users/0/user").expect("a user"), &parsed(case.user));
        let secret = format!("{}-external-kubeconfig", case.name);
        objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": own(&secret), "stringData": {case.key: kubeconfig.to_string()}}));
    }
    objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": own("taken-kubeconfig"), "stringData": {"value": "another owner's"}}));
    objects
}

/// Returns objects without an owner. Nothing requires an action yet, so CAPW does nothing and reports nothing.
fn orphans() -> Vec<Value> {
    let object = |(api_version, kind, spec): &(&str, &str, &str)| json!({"apiVersion": api_version, "kind": kind, "metadata": own("orphan"), "spec": parsed(spec)});
    ORPHANS.iter().map(object).collect()
}

async fn all_say_it(cp: &ControlPlane) {
    wait_for("every wrong object says what is wrong with it", LIMIT, || async {
        let mut found = BTreeMap::new();
        for kind in [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG, Kind::EXTERNAL_CONTROL_PLANE] {
            found.insert(kind.plural, cp.list(kind, Some(NAMESPACE)).await);
        }
        let cases = MACHINES.iter().map(|case| (case.name, &case.told)).chain(CONTROL_PLANES.iter().map(|case| (case.name, &case.told)));
        let silent: Vec<String> = cases
            .filter_map(|(name, told)| {
                let object = found[told.kind.plural].iter().find(|object| text(object, "/metadata/name") == name);
                let said = object.and_then(|object| condition(object, told.condition)).cloned().unwrap_or_default();
                let message = text(&said, "/message");
                let right = said["status"] == "False" && said["reason"] == told.reason && told.says.iter().all(|part| message.contains(part));
                (!right).then(|| format!("{name}: wanted {} {:?}, found {said}", told.reason, told.says))
            })
            .collect();
        if silent.is_empty() { Ok(()) } else { Err(silent.join("\n")) }
    })
    .await;
}

/// While a good machine becomes a node, CAPW writes nothing about the wrong objects and rarely reconciles them.
async fn the_rest_goes_on(cp: &ControlPlane, capw: &Capw, good: Workers) {
    // The other half of a wrong pair waits for it, and reports that once the wait has lasted a while.
    wait_for("both halves of every wrong machine have said how they are", LIMIT, || async {
        let mut silent = Vec::new();
        for kind in [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG] {
            let objects = cp.list(kind, Some(NAMESPACE)).await;
            let waiting = objects.iter().filter(|object| condition(object, "Ready").is_none()).map(|object| text(object, "/metadata/name"));
            silent.extend(waiting.filter(|name| MACHINES.iter().any(|case| case.name == *name)).map(|name| format!("{} {name}", kind.plural)));
        }
        if silent.is_empty() { Ok(()) } else { Err(silent.join("\n")) }
    })
    .await;
    let (mark, start) = (cp.audit_mark(), Instant::now());
    let passes = capw.metric("capw_reconciles_total", &[]);
    let machine = json!({"image": "windows-server-2022", "hypervisorRef": {"name": "lab"}});
    let good = Workers { replicas: 1, template: "good".to_owned(), machine, ..good };
    cp.apply_objects(&[good.machine_template(), good.machine_deployment()]).await;
    let name = wait_for("a good machine runs beside the wrong ones", LIMIT, || async {
        let machines = cp.list(Kind::MACHINE, Some(NAMESPACE)).await;
        let running = machines.iter().find(|machine| text(machine, "/status/phase") == "Running");
        running.map(|machine| text(machine, "/metadata/name").to_owned())
    })
    .await;
    let wrong = |name: &str| {
        let base = name.split('.').next().unwrap_or_default();
        MACHINES.iter().any(|case| case.name == base) || CONTROL_PLANES.iter().any(|case| case.name == base) || base == "orphan"
    };
    let writes: Vec<String> = cp
        .audit_since(mark)
        .into_iter()
        .filter(|event| event.is_write() && event.user == Capw::USER && wrong(&event.name))
        .map(|event| format!("{} {} {}", event.verb, event.uri, event.code))
        .collect();
    assert!(writes.is_empty(), "written about what has not changed:\n{}", writes.join("\n"));
    let objects = (MACHINES.len() * 2 + CONTROL_PLANES.len() * 2 + 6) as f64;
    let passes = capw.metric("capw_reconciles_total", &[]) - passes;
    let most = objects * (PASSES_EACH + start.elapsed().as_secs_f64() / SECONDS_EACH);
    assert!(passes <= most, "{passes} passes over {objects} objects while nothing changed in them");
    let vms: Vec<String> = simulated_vms(capw.state()).into_iter().map(|vm| vm.name).collect();
    assert_eq!(vms, [name], "VMs of wrong objects");
    for event in cp.audit() {
        assert!(event.user != Capw::USER || !event.is_write() || event.name != "orphan", "an object that nothing owns was written to: {event:?}");
    }
    step(format!("a good machine became a node; {passes} passes over {objects} objects meanwhile"));
}

async fn everything_can_be_deleted(cp: &ControlPlane, capw: &Capw) {
    // Delete the Machines first: when a Cluster is deleted, Cluster API leaves Machines that claim to be part of the control plane.
    for case in MACHINES {
        cp.delete(Kind::MACHINE, &format!("{NAMESPACE}/{}", case.name)).await;
    }
    for case in MACHINES {
        cp.wait_gone(Kind::MACHINE, &format!("{NAMESPACE}/{}", case.name), LIMIT).await;
    }
    for cluster in cp.list(Kind::CLUSTER, Some(NAMESPACE)).await {
        cp.delete(Kind::CLUSTER, &format!("{NAMESPACE}/{}", text(&cluster, "/metadata/name"))).await;
    }
    for kind in [Kind::CLUSTER, Kind::MACHINE, Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG, Kind::EXTERNAL_CONTROL_PLANE] {
        wait_for(&format!("the {} are gone", kind.plural), LIMIT, || async {
            let left = cp.list(kind, Some(NAMESPACE)).await;
            let left: Vec<_> =
                left.iter().filter(|object| text(object, "/metadata/name") != "orphan").map(|object| format!("{:#}", object["metadata"])).collect();
            if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
        })
        .await;
    }
    workers::wait_nothing_left(cp, capw, LIMIT).await;
}
