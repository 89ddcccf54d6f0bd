//! Story *faults*: the whole life of a MachineDeployment, a MachinePool and, in another workload cluster, a standalone pool. Meanwhile the
//! connections to all API servers lose requests and replies, refuse, hang, and cut or silence watches. Calls of the hypervisor fail, lose their reply
//! or never return. The story kills and pauses `capw`, deletes machines and removes VMs.
//! A machine never has two VMs, and the VM of a living machine is never destroyed. The clusters reach their desired state soon after the last fault,
//! and nothing is left after everything was deleted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use capw::api::name::VmUuid;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::pools::{Pool, names};
use crate::workers::{self, Workers, is_ready};
use crate::world::{self, Capw, ControlPlane, FaultyWay, Kind, Options, Process, simulated_vms, step, text, wait_for};

/// The limit after the last fault.
const SETTLED: Duration = Duration::from_secs(60);
/// The smallest and the largest number of failing requests in a thousand.
const SHARE: [u32; 2] = [50, 350];
const ALONE: &str = "alone";
const DEPLOYMENT: usize = 0;
const POOL: usize = 1;
const STANDALONE: usize = 2;

#[test]
fn nothing_is_lost_whatever_fails() {
    world::run(async {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is a number")));
        let first = world::seed();
        let (cp, other) =
            tokio::join!(ControlPlane::start(Options::default().named("faults")), ControlPlane::start(Options::plain().named("faults-other")));
        // Without it, each seed draws its own share.
        let share = number("CAPW_SHARE").map(|share| share as u32);
        for seed in (first..).take(number("CAPW_SEEDS").unwrap_or(1) as usize) {
            step(format!("the faults of CAPW_SEED={seed}"));
            Story::new(&cp, &other, seed, share).await.run().await;
        }
    });
}

struct Story<'a> {
    cp: &'a ControlPlane,
    /// The workload cluster of the standalone pool. The others join the management cluster.
    other: &'a ControlPlane,
    /// One process, or two with leader election.
    capw: Vec<Capw>,
    management: FaultyWay,
    workload: FaultyWay,
    /// The connection to the other workload cluster.
    beyond: FaultyWay,
    pool: Pool,
    /// The kubeconfig of the standalone pool.
    alone: String,
    share: u32,
    random: RefCell<StdRng>,
    /// The desired number of machines.
    replicas: RefCell<[usize; 3]>,
    /// The VMs that the story itself removed.
    taken: RefCell<BTreeSet<String>>,
}

impl<'a> Story<'a> {
    async fn new(cp: &'a ControlPlane, other: &'a ControlPlane, seed: u64, share: Option<u32>) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let (management, workload) = (FaultyWay::to(cp, random.random()).await, FaultyWay::to(cp, random.random()).await);
        let beyond = FaultyWay::to(other, random.random()).await;
        let namespace = format!("faults-{seed}");
        let state = format!("--simulated-state={}", cp.directory().join(&namespace).display());
        let two = random.random_bool(0.25);
        let (only, elect) = (format!("--namespace={namespace}"), format!("--leader-elect={two}"));
        let mut capw = Vec::new();
        for _ in 0..1 + usize::from(two) {
            capw.push(Capw::prepare(cp, &[&state, &only, &elect, "--leader-elect-namespace=capw-system"]).await.by(cp, &management).await);
        }
        let mut pool = Pool::new(&namespace, 2, cp).await;
        pool.workers.kubeconfig = workload.kubeconfig(&pool.workers.kubeconfig);
        pool.workers.machine["joinDeadlineSeconds"] = json!(120);
        pool.workers.driver = json!({"simulated": {"faults": [{"names": "*", "fault": "CreateFails", "count": 2}]}});
        let alone = beyond.kubeconfig(&workers::remote_kubeconfig(other).await);
        let share = share.unwrap_or_else(|| random.random_range(SHARE[0]..SHARE[1]));
        let replicas = RefCell::new([2, 2, 2]);
        Self { cp, other, capw, management, workload, beyond, pool, alone, share, random: RefCell::new(random), replicas, taken: RefCell::default() }
    }

    async fn run(self) {
        tokio::select! {
            () = self.life() => {}
            () = self.watch_vms() => {}
        }
        for capw in &self.capw {
            capw.kill();
            assert!(!capw.log().contains("panicked at"), "a panic in {}", capw.process().name());
        }
    }

    async fn life(&self) {
        self.cp.apply_objects(&self.objects()).await;
        self.set(self.share).await;
        self.capw.iter().for_each(|capw| capw.process().start());
        let rounds = self.random.borrow_mut().random_range(4..8);
        for _ in 0..rounds {
            self.pause(4.0).await;
            self.disturb().await;
        }
        self.set(0).await;
        self.capw.iter().for_each(|capw| capw.process().start());
        self.all_as_asked().await;

        self.set(self.share).await;
        self.cp.delete(Kind::CLUSTER, &self.workers().name(&self.workers().cluster)).await;
        self.cp.delete(Kind::WINDOWS_NODE_POOL, &self.workers().name(ALONE)).await;
        self.pause(6.0).await;
        self.restart();
        self.pause(6.0).await;
        self.set(0).await;
        self.capw.iter().for_each(|capw| capw.process().start());
        self.nothing_left().await;
        for (name, way) in [("management", &self.management), ("workload", &self.workload), ("other", &self.beyond)] {
            let (requests, done) = way.told();
            step(format!("{name}: {requests} requests, of which {done:?}"));
        }
    }

    fn workers(&self) -> &Workers {
        &self.pool.workers
    }

    /// The guests and the story itself connect directly.
    fn objects(&self) -> Vec<Value> {
        let endpoint = |of: &ControlPlane| {
            let port: u16 = of.server().rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok()).expect("a port");
            json!({"host": "127.0.0.1", "port": port})
        };
        let mut objects = self.workers().objects();
        for object in &mut objects {
            match text(object, "/kind") {
                "ExternalControlPlane" => object["spec"]["controlPlaneEndpoint"] = endpoint(self.cp),
                "MachineDeployment" => object["spec"]["replicas"] = json!(self.replicas.borrow()[DEPLOYMENT]),
                _ => {}
            }
        }
        objects.extend(self.pool.objects());
        let own = json!({"name": ALONE, "namespace": self.workers().namespace});
        objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": own, "stringData": {"value": self.alone}}));
        objects.push(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "metadata": own,
            "spec": {
                "cluster": {"kubeconfigSecretRef": {"name": ALONE}, "endpoint": endpoint(self.other)}, "replicas": self.replicas.borrow()[STANDALONE],
                "version": self.workers().version, "template": {"machine": self.workers().machine, "bootstrap": self.workers().bootstrap},
                // The VMs of all its machines may disappear at the same time.
                "health": {"maxUnhealthy": "100%"},
            },
        }));
        objects
    }

    async fn set(&self, share: u32) {
        for way in [&self.management, &self.workload, &self.beyond] {
            way.set(share);
        }
        // A call that never returns blocks its machine for half a minute.
        let calls = json!({"spec": {"simulated": {"failingCalls": share / 30}}});
        self.cp.patch(Kind::WINDOWS_HYPERVISOR, &self.workers().name(&self.workers().hypervisor), &calls).await.expect("the hypervisor");
        step(format!("{share} of 1000 requests and {} of its calls fail", share / 30 * 10));
    }

    /// Sleeps for at most this many seconds.
    async fn pause(&self, most: f64) {
        let seconds = self.random.borrow_mut().random_range(0.2..most);
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    fn state(&self) -> &Path {
        self.capw[0].state()
    }

    fn one(&self) -> &Process {
        let nth = self.random.borrow_mut().random_range(0..self.capw.len());
        self.capw[nth].process()
    }

    fn restart(&self) {
        let capw = self.one();
        capw.kill();
        // A process that lost the lease has already ended.
        self.capw.iter().for_each(|capw| capw.process().start());
        step(format!("{} was killed", capw.name()));
    }

    /// Freezes longer than the lease lasts, if another process can take it.
    async fn freeze(&self) {
        let capw = self.one();
        capw.freeze();
        if self.capw.len() > 1 {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        self.pause(6.0).await;
        capw.thaw();
        step(format!("{} was paused", capw.name()));
    }

    async fn cut_the_hypervisor_off(&self) {
        for unreachable in [true, false] {
            let change = json!({"spec": {"simulated": {"unreachable": unreachable}}});
            self.cp.patch(Kind::WINDOWS_HYPERVISOR, &self.workers().name(&self.workers().hypervisor), &change).await.expect("the hypervisor");
            step(format!("the hypervisor answers: {}", !unreachable));
            if unreachable {
                self.pause(6.0).await;
            }
        }
    }

    async fn disturb(&self) {
        let turn = self.random.borrow_mut().random_range(0..10);
        match turn {
            0..4 => self.scale().await,
            4..6 => self.restart(),
            6 => self.freeze().await,
            7 => self.cut_the_hypervisor_off().await,
            8 => self.delete_machine().await,
            _ => self.take_vm_away().await,
        }
    }

    async fn scale(&self) {
        let which = self.random.borrow_mut().random_range(0..3);
        let replicas = self.random.borrow_mut().random_range(0..4);
        self.replicas.borrow_mut()[which] = replicas;
        let (kind, name) = match which {
            DEPLOYMENT => (Kind::MACHINE_DEPLOYMENT, self.workers().cluster.as_str()),
            POOL => (Kind::MACHINE_POOL, "pool"),
            _ => (Kind::WINDOWS_NODE_POOL, ALONE),
        };
        self.cp.patch(kind, &self.workers().name(name), &json!({"spec": {"replicas": replicas}})).await.expect("another number");
        step(format!("{} {name}: {replicas}", kind.plural));
    }

    async fn delete_machine(&self) {
        let machines = self.cp.list(Kind::MACHINE, Some(&self.workers().namespace)).await;
        let chosen = machines.choose(&mut *self.random.borrow_mut());
        let Some(machine) = chosen.map(|machine| text(machine, "/metadata/name")) else { return };
        self.cp.delete(Kind::MACHINE, &self.workers().name(machine)).await;
        step(format!("Machine {machine} was deleted"));
    }

    /// Only a standalone pool replaces its machine automatically. For the other machines, the story then deletes the Machine.
    async fn take_vm_away(&self) {
        let vms: Vec<_> = simulated_vms(self.state()).into_iter().filter(|vm| vm.is_whole()).collect();
        let chosen = vms.choose(&mut *self.random.borrow_mut());
        let Some(vm) = chosen else { return };
        self.taken.borrow_mut().insert(vm.directory.clone());
        // CAPW may be removing the VM already.
        let _ = std::fs::remove_dir_all(self.state().join(&vm.datacenter).join(&vm.directory));
        step(format!("the VM of {} was taken away", vm.name));
        let machines = self.cp.list(Kind::MACHINE, Some(&self.workers().namespace)).await;
        if let Some(machine) = machines.iter().find(|machine| text(machine, "/spec/infrastructureRef/name") == vm.name) {
            self.cp.delete(Kind::MACHINE, &self.workers().name(text(machine, "/metadata/name"))).await;
        }
    }

    /// Waits for the desired number of machines, VMs and Ready Nodes, without a token that nothing needs.
    async fn all_as_asked(&self) {
        let since = Instant::now();
        wait_for("everything is as asked", SETTLED, || async {
            let namespace = Some(self.workers().namespace.as_str());
            let mut machines = self.cp.list(Kind::WINDOWS_MACHINE, namespace).await;
            machines.retain(|machine| text(machine, "/metadata/deletionTimestamp").is_empty());
            let pool_of = |machine: &Value| {
                let owners = machine["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                owners.iter().find(|owner| owner["kind"] == "WindowsNodePool").map(|owner| text(owner, "/name").to_owned())
            };
            let of = |pool: Option<&str>| machines.iter().filter(|machine| pool_of(machine).as_deref() == pool).count();
            let there = [of(None), of(Some("pool")), of(Some(ALONE))];
            let nodes = [self.cp.list(Kind::NODE, None).await, self.other.list(Kind::NODE, None).await].concat();
            let ready: BTreeSet<String> = nodes.iter().filter(|node| is_ready(node)).map(|node| text(node, "/metadata/name").to_owned()).collect();
            let vms: BTreeSet<String> = simulated_vms(self.state()).into_iter().map(|vm| vm.name).collect();
            let tokens = [workers::tokens(self.cp).await, workers::tokens(self.other).await].concat();
            let all = names(&machines);
            if there == *self.replicas.borrow() && all == vms && all == ready && tokens.is_empty() {
                return Ok(());
            }
            Err(format!("{there:?} instead of {:?}; machines {all:?}, VMs {vms:?}, Ready {ready:?}, tokens {tokens:?}", self.replicas.borrow()))
        })
        .await;
        step(format!("as asked {:.1} s after the last fault", since.elapsed().as_secs_f32()));
    }

    async fn nothing_left(&self) {
        let since = Instant::now();
        wait_for("nothing is left", SETTLED, || async {
            let namespace = Some(self.workers().namespace.as_str());
            let mut left = [workers::left_in_workload(self.cp).await, workers::left_in_workload(self.other).await].concat();
            left.extend(simulated_vms(self.state()).iter().map(|vm| format!("{vm:?}")));
            for kind in [
                Kind::CLUSTER,
                Kind::MACHINE,
                Kind::MACHINE_POOL,
                Kind::WINDOWS_MACHINE,
                Kind::WINDOWS_BOOTSTRAP_CONFIG,
                Kind::WINDOWS_NODE_POOL,
                Kind::WINDOWS_CLUSTER,
                Kind::EXTERNAL_CONTROL_PLANE,
                Kind::SECRET,
            ] {
                let given = ["c1-external-kubeconfig", ALONE];
                let objects = names(&self.cp.list(kind, namespace).await);
                left.extend(
                    objects
                        .iter()
                        .filter(|name| kind.plural != "secrets" || !given.contains(&name.as_str()))
                        .map(|name| format!("{} {name}", kind.plural)),
                );
            }
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
        step(format!("nothing left {:.1} s after the last fault", since.elapsed().as_secs_f32()));
    }

    /// Checks the VMs continuously and fails on a violation. Does not return.
    async fn watch_vms(&self) {
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let vms = simulated_vms(self.state());
            let gone: Vec<String> = known.keys().filter(|id| !vms.iter().any(|vm| vm.directory == **id)).cloned().collect();
            let machines = self.cp.list(Kind::WINDOWS_MACHINE, Some(&self.workers().namespace)).await;
            let of = |id: &str| machines.iter().find(|machine| VmUuid::of(text(machine, "/metadata/uid")).to_string() == id);
            for id in gone {
                let is_alive = of(&id).is_some_and(|machine| text(machine, "/metadata/deletionTimestamp").is_empty());
                let was_taken = self.taken.borrow().contains(&id);
                assert!(!is_alive || was_taken, "the VM {id} of {}, which lives, was destroyed", known[&id]);
                known.remove(&id);
            }
            let mut by_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for vm in vms.iter().filter(|vm| !vm.name.is_empty()) {
                by_name.entry(&vm.name).or_default().insert(vm.directory.split('.').next().unwrap_or_default());
            }
            assert!(by_name.values().all(|ids| ids.len() == 1), "two VMs for a machine: {by_name:?}");
            let later = simulated_vms(self.state());
            for vm in later.iter().filter(|vm| vms.contains(vm)) {
                let id = vm.directory.split('.').next().unwrap_or_default();
                assert!(of(id).is_some(), "a VM without its WindowsMachine: {vm:?}");
            }
            known.extend(vms.into_iter().filter(|vm| vm.is_whole()).map(|vm| (vm.directory, vm.name)));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
