//! Story *slow endpoint*: one of several hypervisors hardly answers, and its machines report that. The other hypervisors' machines are created as
//! fast as without it, also while CAPW restarts.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::UnixListener;

use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, Waits, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(240);
/// The number of hypervisors that answer at once, and the machines of each hypervisor.
const GOOD: usize = 9;
const MACHINES: usize = 3;
/// How many times longer objects may wait beside the slow hypervisor. If a thread blocks on the endpoint, they wait for tens of seconds.
const TIMES: u64 = 2;
/// The time after which the connection ends.
const ANSWER: Duration = Duration::from_secs(25);
/// Shorter waits are not compared, because an idle program has them too.
const IDLE_MILLISECONDS: u64 = 1000;

#[test]
fn a_hypervisor_that_hardly_answers_delays_no_other() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("slow-endpoint")).await;
        let capw = Capw::start(&cp, &[]).await;
        let workers = Workers { replicas: 0, ..Workers::new("some", &cp).await };
        let socket = cp.directory().join("slow.sock");
        let _slow = SlowEndpoint::start(&socket);
        let hypervisors: Vec<String> = (0..GOOD).map(|number| format!("good-{number}")).chain(["slow".to_owned()]).collect();
        let (slow, good) = hypervisors.split_last().expect("hypervisors");
        cp.apply_objects(&objects(&workers, &hypervisors, &socket)).await;

        let without = waits(&cp, &capw, &workers, good).await;
        scale(&cp, &workers, good, 0).await;
        wait_for("the machines are gone", LIMIT, || async {
            let left = cp.list(Kind::WINDOWS_MACHINE, Some(&workers.namespace)).await.len();
            if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;

        scale(&cp, &workers, std::slice::from_ref(slow), MACHINES).await;
        says_that_it_does_not_answer(&cp, &workers, slow).await;
        let with = waits(&cp, &capw, &workers, good).await;
        for (when, without, with) in [("at work", &without[0], &with[0]), ("at a start", &without[1], &with[1])] {
            let text = format!("{when}, objects wait {} s without it, {} s beside it", without.within(99), with.within(99));
            step(&text);
            assert!(with.is_at_most(TIMES, without, IDLE_MILLISECONDS), "{text}");
        }
    });
}

/// Measures how long objects waited for their reconciles while the good hypervisors got machines, with a running CAPW and with one that starts.
async fn waits(cp: &ControlPlane, capw: &Capw, workers: &Workers, good: &[String]) -> [Waits; 2] {
    let (began, before) = (Instant::now(), Waits::of(&capw.metrics()));
    scale(cp, workers, good, MACHINES).await;
    all_run(cp, workers, GOOD * MACHINES).await;
    let at_work = Waits::of(&capw.metrics()).since(&before);
    step(format!("{} machines run after {:.1} s", GOOD * MACHINES, began.elapsed().as_secs_f32()));
    capw.kill();
    let began = Instant::now();
    scale(cp, workers, good, MACHINES + 1).await;
    capw.start_again().await;
    all_run(cp, workers, GOOD * (MACHINES + 1)).await;
    step(format!("one more of each after {:.1} s, with a start", began.elapsed().as_secs_f32()));
    [at_work, Waits::of(&capw.metrics())]
}

/// Returns all objects except machines: a MachineDeployment for each hypervisor, whose machines run there.
fn objects(workers: &Workers, hypervisors: &[String], socket: &Path) -> Vec<Value> {
    let mut objects = workers.objects();
    objects.retain(|object| !["WindowsHypervisor", "WindowsCluster", "MachineDeployment"].contains(&text(object, "/kind")));
    let mut infrastructure = workers.windows_cluster();
    infrastructure["spec"]["hypervisors"] = hypervisors.iter().map(|name| json!({"name": name})).collect();
    objects.push(infrastructure);
    let libvirt = json!({"libvirt": {"address": format!("qemu+unix:///session?socket={}", socket.display())}});
    for name in hypervisors {
        let driver = if name == "slow" { libvirt.clone() } else { workers.driver.clone() };
        objects.push(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": name, "namespace": workers.namespace}, "spec": driver,
        }));
        let mut deployment = workers.machine_deployment();
        deployment["metadata"]["name"] = json!(name);
        deployment["spec"]["template"]["spec"]["failureDomain"] = json!(name);
        objects.push(deployment);
    }
    objects
}

async fn scale(cp: &ControlPlane, workers: &Workers, deployments: &[String], replicas: usize) {
    for name in deployments {
        cp.patch(Kind::MACHINE_DEPLOYMENT, &workers.name(name), &json!({"spec": {"replicas": replicas}})).await.expect("a MachineDeployment");
    }
}

async fn all_run(cp: &ControlPlane, workers: &Workers, count: usize) {
    wait_for("all machines of the good hypervisors run", LIMIT, || async {
        let machines = cp.list(Kind::MACHINE, Some(&workers.namespace)).await;
        let running = machines.iter().filter(|machine| text(machine, "/status/phase") == "Running").count();
        if running == count { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await;
}

async fn says_that_it_does_not_answer(cp: &ControlPlane, workers: &Workers, name: &str) {
    cp.wait_condition(Kind::WINDOWS_HYPERVISOR, &workers.name(name), "Ready", "False", LIMIT).await;
}

/// A libvirt daemon that accepts connections and closes them later without an answer.
struct SlowEndpoint(tokio::task::AbortHandle);

impl SlowEndpoint {
    fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    tokio::time::sleep(ANSWER).await;
                    drop(connection);
                });
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for SlowEndpoint {
    fn drop(&mut self) {
        self.0.abort();
    }
}
