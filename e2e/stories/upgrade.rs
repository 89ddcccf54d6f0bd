//! Story *upgrade*: the previous release creates machines. `clusterctl upgrade apply`, or `kubectl apply`, installs this release while some machines
//! are being created and some deleted. Then the story downgrades by hand, and upgrades again. Nobody notices: no VM, Node, Secret or plan changes,
//! each object is written at most once, each release completes the other's work, and both scale the other's objects.
//!
//! The guests always come from the previous release, because this release must understand a node that the previous release installed.
//!
//! `CAPW_KEEP_OBJECTS=FILE` writes the previous release's stored objects and ends: so `e2e/stories/upgrade/objects.json` was created for unit tests.

mod state;

use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use self::state::State;
use crate::idle::wait_quiet_of;
use crate::installed::PARTS;
use crate::pools::Pool;
use crate::workers::{Workers, wait_nothing_left};
use crate::world::{self, Capw, ControlPlane, Kind, Options, Tools, checkout, simulated_vms, step, text, wait_for};

/// The limit for one wait. No wait takes nearly as long on an idle machine.
const LIMIT: Duration = Duration::from_secs(180);
const PREVIOUS: &str = include_str!("upgrade/previous.env");

/// The way to install both releases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Three components, each with its own process.
    Clusterctl,
    /// One process.
    Kubectl,
}

#[test]
#[ignore = "builds the release before this one: make upgrade"]
fn nobody_notices_an_upgrade_by_clusterctl() {
    world::run(nobody_notices(Way::Clusterctl));
}

#[test]
#[ignore = "builds the release before this one: make upgrade"]
fn nobody_notices_an_upgrade_by_kubectl() {
    world::run(nobody_notices(Way::Kubectl));
}

async fn nobody_notices(way: Way) {
    let mut random = StdRng::seed_from_u64(world::seed());
    let options = if way == Way::Clusterctl { Options::plain() } else { Options::cluster_api() };
    let cp = ControlPlane::start(options.named("upgrade")).await;
    let program = Tools::own("previous");
    install_previous(&cp, way, &program).await;
    let old = processes(&cp, way, Some(&program)).await;
    let guests = old[0].guests(&cp).program(&program);
    guests.start();
    start(&old).await;

    let mut life = Life::new(&cp).await;
    life.apply(&cp).await;
    life.wait_settled(&cp).await;
    step("the release before this one has made its nodes");
    if let Some(file) = std::env::var_os("CAPW_KEEP_OBJECTS") {
        state::keep(&cp, Path::new(&file)).await;
        return;
    }
    life.begin(&cp, &old[0]).await;

    let before = State::of(&cp, old[0].state()).await;
    old.iter().for_each(Capw::kill);
    upgrade(&cp, way).await;
    // The processes of clusterctl have other accounts now.
    let (old, new) = (processes(&cp, way, Some(&program)).await, processes(&cp, way, None).await);
    let mark = cp.audit_mark();
    start(&new).await;
    killed_at_random(&new, &mut random).await;
    life.wait_settled(&cp).await;
    life.wait_ended(&cp).await;
    wait_quiet_of(&cp, state::by_ours).await;
    State::of(&cp, new[0].state()).await.assert_as(&before, &cp, mark);
    step("this release has gone on, and nothing else happened");
    life.scale(&cp, 1).await;
    life.replace(&cp).await;
    step("it scales and replaces what the release before has made");

    for (name, from, to) in [("the release before", &new, &old), ("this release", &old, &new)] {
        let before = State::of(&cp, new[0].state()).await;
        from.iter().for_each(Capw::kill);
        let mark = cp.audit_mark();
        start(to).await;
        killed_at_random(to, &mut random).await;
        life.wait_settled(&cp).await;
        wait_quiet_of(&cp, state::by_ours).await;
        State::of(&cp, to[0].state()).await.assert_as(&before, &cp, mark);
        life.scale(&cp, 1).await;
        step(format!("{name} took over, and scales"));
    }
    life.delete(&cp).await;
    wait_nothing_left(&cp, &new[0], LIMIT).await;
    step("nothing is left");
}

fn previous_version() -> &'static str {
    PREVIOUS.lines().find_map(|line| line.strip_prefix("PREVIOUS_VERSION=")).expect("upgrade/previous.env names a version")
}

/// Installs the previous release as users do.
async fn install_previous(cp: &ControlPlane, way: Way, program: &Path) {
    let (version, source) = (previous_version(), program.with_file_name("source"));
    if way == Way::Kubectl {
        return apply(cp, &source).await;
    }
    cp.add_release(version, &source).await;
    let core = format!("cluster-api:{}", Tools::ensure().cluster_api_version);
    let ours = format!("windows:{version}");
    cp.clusterctl(&["init", "--core", &core, "--infrastructure", &ours, "--bootstrap", &ours, "--control-plane", &ours]).await;
    cp.start_core().await;
}

/// Applies all objects of a CAPW release, from its checkout.
async fn apply(cp: &ControlPlane, checkout: &Path) {
    let all = checkout.join("config/default");
    cp.kubectl(&["apply", "--server-side", "-k", all.to_str().expect("a path in UTF-8")]).await;
}

/// Returns the processes of a release. Their guests run elsewhere and survive.
async fn processes(cp: &ControlPlane, way: Way, program: Option<&Path>) -> Vec<Capw> {
    let mut processes = Vec::new();
    if way == Way::Kubectl {
        processes.push(Capw::prepare(cp, &["--simulated-guests=false"]).await);
    } else {
        for (part, namespace) in PARTS {
            processes.push(Capw::prepare_in(cp, namespace, &[&format!("--controllers={part}"), "--simulated-guests=false"]).await);
        }
    }
    let with_program = |capw: Capw| match program {
        Some(program) => capw.program(program),
        None => capw,
    };
    processes.into_iter().map(with_program).collect()
}

async fn start(processes: &[Capw]) {
    for process in processes {
        process.start_again().await;
    }
}

/// Runs the commands that a user types.
async fn upgrade(cp: &ControlPlane, way: Way) {
    if way == Way::Kubectl {
        return apply(cp, checkout()).await;
    }
    let (old, new) = (previous_version(), format!("v{}", env!("CARGO_PKG_VERSION")));
    let plan = cp.clusterctl(&["upgrade", "plan"]).await;
    let lines: Vec<&str> = plan.lines().filter(|line| line.contains("windows") && line.contains(old) && line.contains(&new)).collect();
    assert_eq!(lines.len(), 3, "{plan}");
    let to: Vec<String> = PARTS.iter().flat_map(|(part, namespace)| [format!("--{part}"), format!("{namespace}/windows:{new}")]).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    cp.clusterctl(&[&["upgrade", "apply"][..], &to].concat()).await;
    step(format!("clusterctl has upgraded {old} to {new}"));
}

async fn killed_at_random(processes: &[Capw], random: &mut StdRng) {
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..3000))).await;
        let process = &processes[random.random_range(0..processes.len())];
        process.restart().await;
    }
}

/// Settled clusters of several kinds, a cluster whose machines are being created, and a cluster that loses a machine.
struct Life {
    deployed: Workers,
    pooled: Pool,
    /// A standalone pool for the same cluster.
    alone: Workers,
    begun: Workers,
    leaving: Workers,
}

impl Life {
    async fn new(cp: &ControlPlane) -> Self {
        let slow = json!({"simulated": {"delays": {"createMilliseconds": 4000, "bootMilliseconds": 8000, "joinMilliseconds": 8000}}});
        let stubborn = json!({"simulated": {"delays": {"stopMilliseconds": 15000}}});
        Self {
            deployed: Workers { replicas: 2, ..Workers::new("deployed", cp).await },
            pooled: Pool::new("pooled", 2, cp).await,
            alone: Workers { replicas: 2, ..Workers::new("alone", cp).await },
            begun: Workers { replicas: 2, driver: slow, ..Workers::new("begun", cp).await },
            leaving: Workers { replicas: 2, driver: stubborn, ..Workers::new("leaving", cp).await },
        }
    }

    async fn apply(&self, cp: &ControlPlane) {
        self.deployed.apply(cp).await;
        self.pooled.apply(cp).await;
        self.leaving.apply(cp).await;
        let mut objects = self.alone.objects();
        objects.retain(|object| ["Namespace", "WindowsHypervisor"].contains(&text(object, "/kind")));
        let own = json!({"name": "alone", "namespace": self.alone.namespace});
        objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": own, "stringData": {"value": self.alone.kubeconfig}}));
        objects.push(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "metadata": own,
            "spec": {
                "cluster": {"kubeconfigSecretRef": {"name": "alone"}}, "replicas": self.alone.replicas, "version": self.alone.version,
                "template": {"machine": self.alone.machine, "bootstrap": self.alone.bootstrap},
            },
        }));
        cp.apply_objects(&objects).await;
    }

    async fn wait_settled(&self, cp: &ControlPlane) {
        self.deployed.wait_settled(cp, cp, LIMIT).await;
        self.pooled.wait_settled(cp).await;
        self.leaving.wait_settled(cp, cp, LIMIT).await;
        let replicas = self.alone.replicas;
        cp.wait_object(Kind::WINDOWS_NODE_POOL, "alone/alone", "all its machines are Ready", LIMIT, |pool| {
            (pool.pointer("/status/readyReplicas")? == replicas && pool.pointer("/status/replicas")? == replicas).then_some(())
        })
        .await;
    }

    /// Begins operations that the previous release does not complete: two machines are created, and one is deleted.
    async fn begin(&mut self, cp: &ControlPlane, capw: &Capw) {
        self.begun.apply(cp).await;
        wait_for("a VM of a machine that has not joined", LIMIT, || async {
            let begun = simulated_vms(capw.state()).into_iter().find(|vm| vm.datacenter == "begun.lab" && vm.power == "On");
            begun.map(|_| ()).ok_or("none yet")
        })
        .await;
        self.leaving.replicas = 1;
        cp.apply_objects(&[self.leaving.machine_deployment()]).await;
        wait_for("a VM is being stopped", LIMIT, || async {
            let stopping = simulated_vms(capw.state()).into_iter().find(|vm| vm.datacenter == "leaving.lab" && vm.power == "Stopping");
            stopping.map(|_| ()).ok_or("none yet")
        })
        .await;
    }

    async fn wait_ended(&self, cp: &ControlPlane) {
        self.begun.wait_settled(cp, cp, LIMIT).await;
    }

    async fn scale(&mut self, cp: &ControlPlane, by: usize) {
        self.deployed.replicas += by;
        cp.apply_objects(&[self.deployed.machine_deployment()]).await;
        let replicas = self.pooled.workers.replicas + by;
        self.pooled.scale(cp, replicas).await;
        self.alone.replicas += by;
        cp.patch(Kind::WINDOWS_NODE_POOL, "alone/alone", &json!({"spec": {"replicas": self.alone.replicas}})).await.expect("a pool is scaled");
        self.wait_settled(cp).await;
    }

    /// Changes the template, which replaces each machine of the MachineDeployment.
    async fn replace(&mut self, cp: &ControlPlane) {
        let old = self.deployed.wait_settled(cp, cp, LIMIT).await;
        self.deployed.template = "second".to_owned();
        self.deployed.machine["memory"] = json!("6Gi");
        cp.apply_objects(&[self.deployed.machine_template(), self.deployed.machine_deployment()]).await;
        let new = self.deployed.wait_settled(cp, cp, LIMIT).await;
        let names = crate::pools::names(&old);
        assert!(crate::pools::names(&new).is_disjoint(&names), "a machine stayed");
    }

    async fn delete(&self, cp: &ControlPlane) {
        for workers in [&self.deployed, &self.pooled.workers, &self.begun, &self.leaving] {
            cp.delete(Kind::CLUSTER, &workers.name(&workers.cluster)).await;
        }
        cp.delete(Kind::WINDOWS_NODE_POOL, "alone/alone").await;
        for workers in [&self.deployed, &self.pooled.workers, &self.begun, &self.leaving] {
            workers.wait_gone(cp, LIMIT).await;
        }
        cp.wait_gone(Kind::WINDOWS_NODE_POOL, "alone/alone", LIMIT).await;
    }
}
