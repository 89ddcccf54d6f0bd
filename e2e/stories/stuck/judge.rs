//! Judges the reports of a problem on an object, in all three places where people read them.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, condition, step, text, wait_for};

/// The most time from the fact until all three places report it.
pub const TOLD: Duration = Duration::from_secs(30);
/// The limit for a machine to be created, or for everything of a cluster to be deleted.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The expected report of an object.
pub struct Told<'a> {
    pub kind: Kind,
    /// Type and status of the condition.
    pub condition: (&'a str, &'a str),
    pub reason: &'a str,
    /// The parts of the message: what, where, remedy.
    pub says: &'a [&'a str],
}

/// The cluster of one case: with one machine.
pub async fn one_machine(namespace: &str, cp: &ControlPlane) -> Workers {
    Workers { replicas: 1, ..Workers::new(namespace, cp).await }
}

/// Waits until condition, event and column of an object in the namespace report it, and prints the time since `fact`; returns the object.
pub async fn told(cp: &ControlPlane, namespace: &str, fact: Instant, told: Told<'_>) -> Value {
    let object = said(cp, namespace, &told).await;
    let name = text(&object, "/metadata/name");
    let event = format!("Warning {}: ", told.reason);
    wait_for(&format!("an event of {name} in {namespace} says {} {:?}", told.reason, told.says), TOLD, || async {
        let events = cp.events(namespace, name).await;
        let found = events.iter().any(|said| said.starts_with(&event) && told.says.iter().all(|part| said.contains(part)));
        if found { Ok(()) } else { Err(format!("{events:#?}")) }
    })
    .await;
    let resource = format!("{}.{}", told.kind.plural, told.kind.api_version.split('/').next().unwrap_or_default());
    let table = cp.kubectl(&["-n", namespace, "get", &resource]).await;
    let row = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row.split_whitespace().any(|cell| cell == told.reason), "no column of kubectl get shows {}:\n{table}", told.reason);
    if told.kind == Kind::WINDOWS_HYPERVISOR {
        let table = cp.kubectl(&["-n", namespace, "get", &resource, "-o", "wide"]).await;
        let row = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(told.says.iter().all(|part| row.contains(part)), "no column of kubectl get -o wide says {:?}:\n{table}", told.says);
    }
    let took = fact.elapsed();
    step(format!("{namespace}: {} {} after {:.1} s", told.kind.plural, told.reason, took.as_secs_f32()));
    assert!(took <= TOLD || !world::has_goals(), "{namespace}: {} was told after {took:?}", told.reason);
    object
}

/// Waits until the condition of an object in the namespace reports it; returns the object.
pub async fn said(cp: &ControlPlane, namespace: &str, told: &Told<'_>) -> Value {
    wait_for(&format!("{} in {namespace} say {} {:?}", told.kind.plural, told.reason, told.says), TOLD, || async {
        let objects = cp.list(told.kind, Some(namespace)).await;
        let found = objects.iter().find(|object| says(object, told).is_ok());
        found.cloned().ok_or_else(|| objects.iter().filter_map(|object| says(object, told).err()).collect::<Vec<_>>().join("\n"))
    })
    .await
}

fn says(object: &Value, told: &Told<'_>) -> Result<(), String> {
    let (kind, status) = told.condition;
    let found = condition(object, kind).ok_or_else(|| format!("no condition {kind}: {:#}", object["status"]))?;
    let message = text(found, "/message");
    let holds = found["status"] == status && found["reason"] == told.reason && told.says.iter().all(|part| message.contains(part));
    if holds { Ok(()) } else { Err(format!("{found:#}")) }
}

/// Expects that the machine reports why it is not created, within the limit after its data exists.
pub async fn machine_says(cp: &ControlPlane, workers: &Workers, reason: &str, says: &[&str]) {
    let namespace = &workers.namespace;
    let fact = true_of(cp, Kind::WINDOWS_BOOTSTRAP_CONFIG, namespace, "DataSecretAvailable").await;
    told(cp, namespace, fact, Told { kind: Kind::WINDOWS_MACHINE, condition: ("Ready", "False"), reason, says }).await;
}

/// Expects that the hypervisor reports its problem.
pub async fn hypervisor_says(cp: &ControlPlane, namespace: &str, reason: &str, says: &[&str]) {
    let wrong = Told { kind: Kind::WINDOWS_HYPERVISOR, condition: ("Reachable", "False"), reason, says };
    told(cp, namespace, Instant::now(), wrong).await;
}

/// Expects that the hypervisor is reachable, and reports why it cannot run VMs properly.
pub async fn hypervisor_is_unfit(cp: &ControlPlane, namespace: &str, says: &[&str]) {
    let unfit = Told { kind: Kind::WINDOWS_HYPERVISOR, condition: ("Ready", "False"), reason: "HypervisorUnfit", says };
    let object = told(cp, namespace, Instant::now(), unfit).await;
    assert_eq!(condition(&object, "Reachable").map(|found| &found["status"]), Some(&json!("True")), "{:#}", object["status"]);
}

/// Expects that the hypervisor reports its problem, and that its machine, which is to be created, repeats it.
pub async fn both_say(cp: &ControlPlane, workers: &Workers, reason: &str, says: &[&str]) {
    let from_there = [&["WindowsHypervisor lab"], says].concat();
    tokio::join!(hypervisor_says(cp, &workers.namespace, reason, says), machine_says(cp, workers, "HypervisorUnreachable", &from_there));
}

/// Expects that a running machine reports its VM as unobservable. Its node may well be fine: the machine stays Ready, or a MachineHealthCheck would
/// replace it.
pub async fn unseen_and_ready(cp: &ControlPlane, namespace: &str, says_of_hypervisor: &[&str]) {
    let all = [&["WindowsHypervisor lab"], says_of_hypervisor].concat();
    let unseen = Told { kind: Kind::WINDOWS_MACHINE, condition: ("VirtualMachineReady", "Unknown"), reason: "HypervisorUnreachable", says: &all };
    let running = said(cp, namespace, &unseen).await;
    assert_eq!(condition(&running, "Ready").map(|ready| &ready["status"]), Some(&json!("True")), "{:#}", running["status"]);
}

/// Waits until an object of the kind in a namespace has that condition; returns that moment, because earlier time is not measured.
pub async fn true_of(cp: &ControlPlane, kind: Kind, namespace: &str, type_: &str) -> Instant {
    wait_for(&format!("{} in {namespace}: {type_}", kind.plural), LIMIT, || async {
        let objects = cp.list(kind, Some(namespace)).await;
        objects.iter().any(|object| condition(object, type_).is_some_and(|found| found["status"] == "True")).then_some(())
    })
    .await;
    Instant::now()
}

/// Waits for the moment and returns it as an instant.
pub async fn until(moment: Timestamp) -> Instant {
    let left = Duration::try_from(moment.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(left).await;
    let since = Duration::try_from(Timestamp::now().duration_since(moment)).unwrap_or_default();
    Instant::now().checked_sub(since).expect("an instant")
}

/// Deletes all Clusters, and waits until nothing is left of them anywhere.
pub async fn everything_goes(cp: &ControlPlane, capw: &Capw) {
    step("all is told; now everything goes");
    for cluster in cp.list(Kind::CLUSTER, None).await {
        cp.delete(Kind::CLUSTER, &format!("{}/{}", text(&cluster, "/metadata/namespace"), text(&cluster, "/metadata/name"))).await;
    }
    wait_for("no Cluster is left", LIMIT, || async {
        let left = cp.list(Kind::CLUSTER, None).await;
        let names: Vec<_> = left.iter().map(|cluster| text(cluster, "/metadata/namespace")).collect();
        if left.is_empty() { Ok(()) } else { Err(names.join(" ")) }
    })
    .await;
    workers::wait_nothing_left(cp, capw, LIMIT).await;
    assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
}
