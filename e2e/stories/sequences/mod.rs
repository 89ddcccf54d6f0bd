//! Story *sequences*: every field of every kind is set, changed, unset and reverted, with values from the schema, valid and
//! invalid ones, under a running CAPW. CAPW never panics, handles every change, and comes to rest; each refusal names the field,
//! and everything can be deleted afterwards. A run takes some fields of each kind, others with another
//! `CAPW_SEED`; `CAPW_SEQUENCES=all` takes all of them.

mod refusals;
mod values;

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::{DynamicObject, PostParams};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use self::refusals::Cause;
use self::values::{Field, fields, patch, values};
use crate::idle::wait_quiet;
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, step, text, wait_for};

const NAMESPACE: &str = "sequences";
const LIMIT: Duration = Duration::from_secs(120);
/// Fields of each kind in a short run.
const FEW: usize = 12;
/// The most processor time of CAPW in [`REST`] when nothing changes.
const IDLE: f64 = 1.0;
const REST: Duration = Duration::from_secs(10);

/// How many objects of a kind share its fields in a long run: for the kinds with most fields, whose controller observes each change.
const ABREAST: usize = 4;

/// An object whose fields are changed.
struct Subject {
    kind: Kind,
    name: String,
    /// Whether a controller reports `observedGeneration` for the object.
    followed: bool,
    /// The index of this object and the number of objects of its kind, which share the fields.
    share: (usize, usize),
}

/// The results of the changes of one object.
#[derive(Default)]
struct Count {
    accepted: usize,
    refused: usize,
    wrong: Vec<String>,
}

#[test]
fn sequences_of_updates() {
    world::run(async {
        let all = are_all_wanted();
        let cp = ControlPlane::start(Options::default().named("sequences")).await;
        let capw = Capw::start(&cp, &[]).await;
        let process = capw.process().id();
        let subjects = subjects(&cp, if all { ABREAST } else { 1 }).await;
        step(format!("{} objects are there", subjects.len()));

        let mut random = StdRng::seed_from_u64(world::seed());
        let mut runs = Vec::new();
        for subject in &subjects {
            let root = schema(&cp, subject.kind).await;
            let chosen = fields(&json!({"properties": {"spec": root["properties"]["spec"]}}), &[]);
            let (number, of) = subject.share;
            let mut chosen: Vec<Field> = chosen.into_iter().skip(number).step_by(of).collect();
            if !all {
                let some: Vec<usize> = (0..chosen.len()).collect::<Vec<_>>().choose_multiple(&mut random, FEW).copied().collect();
                let mut index = 0;
                chosen.retain(|_| {
                    index += 1;
                    some.contains(&(index - 1))
                });
            }
            runs.push(run(&cp, subject, root, chosen));
        }
        let counts = join_all(runs).await;
        let (accepted, refused) = counts.iter().fold((0, 0), |(a, r), count| (a + count.accepted, r + count.refused));
        step(format!("{accepted} changes were accepted, {refused} refused"));
        let wrong: Vec<&String> = counts.iter().flat_map(|count| &count.wrong).collect();
        assert!(accepted > 50 && refused > 50, "{accepted} accepted, {refused} refused: the values are no good");

        wait_quiet(&cp).await;
        let before = capw.process().processor_seconds().expect("CAPW runs");
        tokio::time::sleep(REST).await;
        let used = capw.process().processor_seconds().expect("CAPW runs") - before;
        assert!(used < IDLE, "CAPW used {used} s of processor time while nothing changed");
        assert_eq!(capw.process().id(), process, "the process ended and was started again");
        assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
        step(format!("it has come to rest: {used:.2} s of processor time in {} s", REST.as_secs()));

        delete_all(&cp, &capw, &subjects).await;
        assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.iter().map(|w| w.as_str()).collect::<Vec<_>>().join("\n"));
    });
}

/// Whether a long run was requested.
fn are_all_wanted() -> bool {
    std::env::var("CAPW_SEQUENCES").is_ok_and(|which| which == "all")
}

/// Creates objects of each kind, with a running controller where there is one: `abreast` of the kinds with most fields, else one.
async fn subjects(cp: &ControlPlane, abreast: usize) -> Vec<Subject> {
    let workers = Workers { replicas: abreast, ..Workers::new(NAMESPACE, cp).await };
    workers.apply(cp).await;
    let object = |api: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": format!("{api}.cluster.x-k8s.io/v1alpha1"), "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
    let machine = json!({"image": "windows-server-2022"});
    let cluster = json!({"kubeconfigSecretRef": {"name": "c1-external-kubeconfig"}});
    let template = json!({"machine": {"image": "windows-server-2022", "hypervisorRef": {"name": "lab"}}, "bootstrap": {}});
    let pool = json!({"replicas": 1, "version": workers.version, "cluster": cluster, "template": template.clone()});
    cp.apply_objects(&[
        object("infrastructure", "WindowsHypervisor", "spare", json!({"simulated": {}})),
        object("infrastructure", "WindowsMachine", "unowned", machine.clone()),
        object("bootstrap", "WindowsBootstrapConfig", "unowned", json!({})),
        object("infrastructure", "WindowsMachineTemplate", "t", json!({"template": {"spec": machine}})),
        object("bootstrap", "WindowsBootstrapConfigTemplate", "t", json!({"template": {}})),
        object("infrastructure", "WindowsClusterTemplate", "t", json!({"template": {}})),
        object("infrastructure", "WindowsNodePoolTemplate", "t", json!({"template": {"spec": {"template": template}}})),
        object("controlplane", "ExternalControlPlaneTemplate", "t", json!({"template": {}})),
    ])
    .await;
    let pools: Vec<String> = (0..abreast).map(|number| format!("pool-{number}")).collect();
    cp.apply_objects(&pools.iter().map(|name| object("infrastructure", "WindowsNodePool", name, pool.clone())).collect::<Vec<_>>()).await;
    workers.wait_settled(cp, cp, LIMIT).await.clear();
    for pool in &pools {
        cp.wait_condition(Kind::WINDOWS_NODE_POOL, &workers.name(pool), "Ready", "True", LIMIT).await;
    }
    let of_core = cp.list(Kind::MACHINE, Some(NAMESPACE)).await;
    let live: Vec<String> = of_core.iter().map(|machine| text(machine, "/metadata/name").to_owned()).collect();
    let one = |name: &str| vec![name.to_owned()];
    let at_work = [
        (Kind::WINDOWS_HYPERVISOR, one("spare")),
        (Kind::WINDOWS_CLUSTER, one("c1")),
        (Kind::EXTERNAL_CONTROL_PLANE, one("c1")),
        (Kind::WINDOWS_NODE_POOL, pools),
        (Kind::WINDOWS_MACHINE, live.clone()),
        (Kind::WINDOWS_BOOTSTRAP_CONFIG, live),
    ];
    let stored = [
        (Kind::WINDOWS_MACHINE, "unowned"),
        (Kind::WINDOWS_BOOTSTRAP_CONFIG, "unowned"),
        (Kind::WINDOWS_MACHINE_TEMPLATE, "t"),
        (Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE, "t"),
        (Kind::WINDOWS_CLUSTER_TEMPLATE, "t"),
        (Kind::WINDOWS_NODE_POOL_TEMPLATE, "t"),
        (Kind::EXTERNAL_CONTROL_PLANE_TEMPLATE, "t"),
    ];
    let stored = stored.map(|(kind, name)| (kind, one(name)));
    let mut subjects = Vec::new();
    for (followed, (kind, names)) in at_work.into_iter().map(|of| (true, of)).chain(stored.into_iter().map(|of| (false, of))) {
        let of = names.len();
        subjects.extend(names.iter().enumerate().map(|(number, name)| Subject { kind, name: workers_name(name), followed, share: (number, of) }));
    }
    subjects
}

fn workers_name(name: &str) -> String {
    format!("{NAMESPACE}/{name}")
}

/// The schema of a kind in the API server.
async fn schema(cp: &ControlPlane, kind: Kind) -> Value {
    let group = kind.api_version.split('/').next().unwrap_or_default();
    let name = format!("{}.{group}", kind.plural);
    let definition = cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, &name).await.expect("a definition");
    definition.pointer("/spec/versions/0/schema/openAPIV3Schema").expect("a schema").clone()
}

/// Sets every value of every field in turn, then reverts it.
async fn run(cp: &ControlPlane, subject: &Subject, root: Value, chosen: Vec<Field>) -> Count {
    let began = Instant::now();
    let mut count = Count::default();
    let number = chosen.len();
    let original = cp.get(subject.kind, &subject.name).await.expect("the object")["spec"].clone();
    for field in chosen {
        for value in values(&field.schema) {
            let object = cp.get(subject.kind, &subject.name).await.expect("the object");
            let shown: String = value.to_string().chars().take(60).collect();
            let what = format!("{} {} = {shown}", subject.kind.plural, field.name());
            match cp.patch(subject.kind, &subject.name, &patch(&field, &root, &object, &value)).await {
                Ok(changed) => {
                    count.accepted += 1;
                    follow(cp, subject, &changed, &what).await;
                }
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                    count.refused += 1;
                    let causes = refusals::causes(&status);
                    if !is_right(cp, subject, &field, &root, &object, &causes).await {
                        count.wrong.push(format!("{what}\n    {causes:?}"));
                    }
                }
                Err(error) => count.wrong.push(format!("{what}\n    failed: {error}")),
            }
        }
        put_back(cp, subject, &original, &mut count).await;
    }
    step(format!("{} {}: {number} fields in {} s", subject.kind.plural, subject.name, began.elapsed().as_secs()));
    count
}

/// Whether a refusal names the field, or is about another field.
async fn is_right(cp: &ControlPlane, subject: &Subject, field: &Field, root: &Value, object: &Value, causes: &[Cause]) -> bool {
    let others = async |other: Option<Value>| {
        let change = patch(field, root, object, &other.unwrap_or_default());
        match cp.dry_run_patch(subject.kind, &subject.name, &change).await {
            Err(kube::Error::Api(status)) => refusals::causes(&status),
            Err(_) | Ok(()) => Vec::new(),
        }
    };
    causes.iter().any(|(at, message)| refusals::names(field, at, message)) || refusals::are_of_another(field, causes, others).await
}

/// Waits until the controller has observed the change.
async fn follow(cp: &ControlPlane, subject: &Subject, changed: &Value, what: &str) {
    if !subject.followed {
        return;
    }
    let generation = changed.pointer("/metadata/generation").and_then(Value::as_i64).expect("a generation");
    cp.wait_object(subject.kind, &subject.name, &format!("{what}: generation {generation} is followed"), LIMIT, |object| {
        let seen = object.pointer("/status/observedGeneration").and_then(Value::as_i64).unwrap_or_default();
        let paused = condition(object, "Paused").is_some_and(|paused| paused["status"] == "True");
        (seen >= generation || paused).then_some(())
    })
    .await;
}

/// Restores the original spec.
async fn put_back(cp: &ControlPlane, subject: &Subject, original: &Value, count: &mut Count) {
    let short = subject.name.rsplit('/').next().expect("a name");
    let back = wait_for(&format!("{} is put back", subject.name), LIMIT, || async {
        let mut object = cp.get(subject.kind, &subject.name).await.ok_or("it is gone")?;
        if object["spec"] == *original {
            return Ok(Ok(object));
        }
        // The controller's own field keeps its value.
        let ids = object.pointer("/spec/providerIDList").cloned();
        object["spec"] = original.clone();
        if let Some(ids) = ids {
            object["spec"]["providerIDList"] = ids;
        }
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        match cp.api(subject.kind, Some(NAMESPACE)).replace(short, &PostParams::default(), &object).await {
            Ok(written) => Ok(Ok(serde_json::to_value(written).expect("JSON"))),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(status.message.clone()),
            Err(error) => Ok(Err(error.to_string())),
        }
    })
    .await;
    match back {
        Ok(object) => follow(cp, subject, &object, "put back").await,
        // An immutable field keeps its new value.
        Err(refused) if refused.contains("cannot change") => {}
        Err(refused) => count.wrong.push(format!("{} {} cannot be put back: {refused}", subject.kind.plural, subject.name)),
    }
}

async fn delete_all(cp: &ControlPlane, capw: &Capw, subjects: &[Subject]) {
    let name = workers_name;
    let pools = subjects.iter().filter(|subject| subject.kind == Kind::WINDOWS_NODE_POOL).map(|subject| (subject.kind, subject.name.clone()));
    let first: Vec<(Kind, String)> = pools.chain([(Kind::CLUSTER, name("c1"))]).collect();
    for (kind, name) in &first {
        cp.delete(*kind, name).await;
    }
    for (kind, name) in &first {
        cp.wait_gone(*kind, name, LIMIT).await;
    }
    let left = [
        (Kind::WINDOWS_MACHINE, "unowned"),
        (Kind::WINDOWS_BOOTSTRAP_CONFIG, "unowned"),
        (Kind::WINDOWS_HYPERVISOR, "spare"),
        (Kind::WINDOWS_HYPERVISOR, "lab"),
        (Kind::WINDOWS_MACHINE_TEMPLATE, "t"),
        (Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE, "t"),
        (Kind::WINDOWS_CLUSTER_TEMPLATE, "t"),
        (Kind::WINDOWS_NODE_POOL_TEMPLATE, "t"),
        (Kind::EXTERNAL_CONTROL_PLANE_TEMPLATE, "t"),
    ];
    for (kind, own) in left {
        cp.delete(kind, &name(own)).await;
        cp.wait_gone(kind, &name(own), LIMIT).await;
    }
    workers::wait_nothing_left(cp, capw, LIMIT).await;
    step("everything was deleted");
}
