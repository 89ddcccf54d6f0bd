//! Story *scale race*: several writers change the number of a pool two hundred times, each with another method. Meanwhile guests fail, VMs disappear,
//! the hypervisor becomes unreachable, other writers change all objects, and `capw` is killed. The pool ends at the last number. There is never a VM
//! without an owner, the pool never exceeds the highest number, and no machine is removed wrongly.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::pools::{Pool, names};
use crate::workers::{self, Workers};
use crate::world::{self, AuditEvent, AuditMark, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for};

/// The limit for one wait. Failed machines are replaced a few at a time.
const LIMIT: Duration = Duration::from_secs(300);
const NAMESPACE: &str = "race";
const WRITERS: usize = 4;
/// The changes per writer: of the MachinePool, and of the WindowsNodePool once that controls the number.
const CHANGES: [usize; 2] = [50, 10];
/// The lowest and the highest number that a writer sets.
const LEAST: usize = 2;
const MOST: usize = 9;
/// The fault of a pool's machine, by the last letter of its name, which is random.
const FAULTS: [(&str, &str); 8] = [
    ("a", "NoBoot"),
    ("b", "NoJoin"),
    ("c", "CreateFails"),
    ("d", "Slow"),
    ("e", "FeatureMissing"),
    ("f", "RuntimeBroken"),
    ("g", "TokenExpired"),
    ("h", "DiskFull"),
];

#[test]
fn numbers_race_and_machines_fail() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("race")).await;
        let capw = Capw::start(&cp, &[]).await;
        let seed = world::seed();
        let bystanders = Workers { cluster: "bystanders".to_owned(), replicas: 2, ..Workers::new(NAMESPACE, &cp).await };
        bystanders.apply(&cp).await;
        let standing = identities(&bystanders.wait_settled(&cp, &cp, LIMIT).await);

        let mut pool = Pool::new(NAMESPACE, 5, &cp).await;
        pool.workers.machine["joinDeadlineSeconds"] = json!(20);
        pool.workers.driver =
            json!({"simulated": {"faults": FAULTS.map(|(letter, fault)| json!({"names": format!("pool-*{letter}"), "fault": fault}))}});
        let race = Race { cp: &cp, capw: &capw, pool, seed, failed: RefCell::default(), dead: Cell::new(0), calm: Cell::new(false) };
        race.begin().await;
        tokio::select! {
            () = race.run() => {}
            () = workers::watch_vms(&cp, &capw, Duration::ZERO) => {}
            () = race.judge() => {}
            () = race.take_vms_away() => {}
            () = race.cut_the_hypervisor_off() => {}
            () = race.write_beside() => {}
            () = race.kill() => {}
            () = race.remediate() => {}
        }
        assert!(race.dead.get() > 0 && !race.failed.borrow().is_empty(), "nothing went wrong, so nothing was shown");

        assert_eq!(identities(&bystanders.settled(&cp, &cp).await.expect("the bystanders")), standing, "a machine of others was touched");
        race.cut(false).await;
        for cluster in ["c1", "bystanders"] {
            cp.delete(Kind::CLUSTER, &format!("{NAMESPACE}/{cluster}")).await;
        }
        cp.wait_gone(Kind::CLUSTER, &bystanders.name("bystanders"), LIMIT).await;
        cp.delete(Kind::SECRET, &bystanders.name("bystanders-external-kubeconfig")).await;
        race.pool.workers.wait_gone(&cp, LIMIT).await;
        workers::wait_nothing_left(&cp, &capw, LIMIT).await;
        assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
    });
}

fn identities(machines: &[Value]) -> BTreeSet<String> {
    machines.iter().map(|machine| format!("{} {}", text(machine, "/metadata/uid"), text(machine, "/spec/providerID"))).collect()
}

struct Race<'w> {
    cp: &'w ControlPlane,
    capw: &'w Capw,
    pool: Pool,
    seed: u64,
    /// The names of machines with a fault.
    failed: RefCell<BTreeSet<String>>,
    /// How often `capw` was killed.
    dead: Cell<usize>,
    /// While it is set, no new disturbance begins.
    calm: Cell<bool>,
}

impl Race<'_> {
    /// Returns the nth random generator.
    fn random(&self, nth: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_add(nth))
    }

    fn name(&self) -> String {
        format!("{NAMESPACE}/pool")
    }

    async fn begin(&self) {
        let health_check = json!({
            "apiVersion": Kind::MACHINE_HEALTH_CHECK.api_version, "kind": "MachineHealthCheck", "metadata": {"name": "pool", "namespace": NAMESPACE},
            "spec": {
                "clusterName": "c1",
                "selector": {"matchLabels": {"cluster.x-k8s.io/pool-name": "pool"}},
                // [`Race::remediate`] marks the unhealthy machines.
                "checks": {"nodeStartupTimeoutSeconds": 3600},
                "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "100%"}},
            },
        });
        self.pool.apply(self.cp).await;
        self.cp.apply_objects(&[health_check]).await;
    }

    /// Runs two races, and checks after each that the last number is reached.
    async fn run(&self) {
        let mark = self.cp.audit_mark();
        self.race(Kind::MACHINE_POOL, CHANGES[0]).await;
        self.ends(Kind::MACHINE_POOL).await;
        let infrastructure = json!({"metadata": {"annotations": {"cluster.x-k8s.io/replicas-managed-by": "the-race"}}});
        let asked = self.asked(Kind::MACHINE_POOL).await;
        self.cp.patch(Kind::WINDOWS_NODE_POOL, &self.name(), &json!({"spec": {"replicas": asked}})).await.expect("a number");
        self.cp.patch(Kind::MACHINE_POOL, &self.name(), &infrastructure).await.expect("an annotation");
        self.race(Kind::WINDOWS_NODE_POOL, CHANGES[1]).await;
        self.ends(Kind::WINDOWS_NODE_POOL).await;
        let told = self.asked(Kind::WINDOWS_NODE_POOL).await;
        self.cp
            .wait_object(Kind::MACHINE_POOL, &self.name(), "told of the number", LIMIT, |pool| (pool["spec"]["replicas"] == told).then_some(()))
            .await;
        let events = self.cp.audit_since(mark);
        let count =
            |verb: &str, resource: &str| events.iter().filter(|e| (e.verb.as_str(), e.resource.as_str()) == (verb, resource) && by_capw(e)).count();
        let (made, removed, failed) = (count("create", "windowsmachines"), count("delete", "machines"), self.failed.borrow().len());
        let refused = events.iter().filter(|event| event.user == Capw::USER && event.code == 409).count();
        step(format!("{made} machines made, {removed} removed, {failed} hit by a fault, {refused} conflicts, killed {} times", self.dead.get()));
        assert!(made > MOST && removed > MOST, "too little happened: {made} made, {removed} removed");
    }

    /// Runs all writers concurrently.
    async fn race(&self, target: Kind, changes: usize) {
        let writers = (0..WRITERS).map(|nth| self.change(target, nth, changes));
        futures::future::join_all(writers).await;
        step(format!("{} was changed {} times", target.plural, changes * WRITERS));
    }

    async fn change(&self, target: Kind, nth: usize, changes: usize) {
        let mut random = self.random(100 + nth as u64);
        for _ in 0..changes {
            let replicas = random.random_range(LEAST..=MOST);
            self.ask(target, nth, replicas).await;
            // From 20 ms to 5 s: some changes come before CAPW saw the last one, some after machines were created and removed.
            pause(&mut random, 5.5).await;
        }
    }

    /// Sets a number with the method of the nth writer.
    async fn ask(&self, target: Kind, nth: usize, replicas: usize) {
        let api = self.cp.api(target, Some(NAMESPACE));
        let change = json!({"spec": {"replicas": replicas}});
        match nth {
            // As kubectl scale and the autoscalers do.
            0 => drop(api.patch_scale("pool", &PatchParams::default(), &Patch::Merge(&change)).await.expect("the scale subresource")),
            1 => drop(self.cp.patch(target, &self.name(), &change).await.expect("a number")),
            2 => {
                let mut object = change;
                let kind = if target == Kind::MACHINE_POOL { "MachinePool" } else { "WindowsNodePool" };
                (object["apiVersion"], object["kind"], object["metadata"]) = (json!(target.api_version), json!(kind), json!({"name": "pool"}));
                api.patch("pool", &PatchParams::apply("the-race").force(), &Patch::Apply(&object)).await.expect("server-side apply");
            }
            // As kubectl edit does: if the object has changed, it reads it again.
            _ => {
                wait_for("a write without a conflict", LIMIT, || async {
                    let mut object = api.get("pool").await.expect("the pool");
                    object.data["spec"]["replicas"] = json!(replicas);
                    match api.replace("pool", &PostParams::default(), &object).await {
                        Ok(_) => Ok(()),
                        Err(kube::Error::Api(status)) if status.code == 409 => Err(status.message),
                        Err(error) => panic!("replace: {error}"),
                    }
                })
                .await;
            }
        }
    }

    async fn asked(&self, target: Kind) -> Value {
        self.cp.get(target, &self.name()).await.expect("the pool")["spec"]["replicas"].clone()
    }

    /// Waits for the last number of machines, each with its VM.
    async fn ends(&self, target: Kind) {
        self.calm.set(true);
        self.cut(false).await;
        let asked = self.asked(target).await;
        let replicas = usize::try_from(asked.as_u64().expect("a number")).expect("a small number");
        let workers = Workers { replicas, ..self.pool.workers.clone() };
        step(format!("{asked} are asked for"));
        let settled = || async {
            let machines = workers.settled(self.cp, self.cp).await?;
            let pool = self.cp.get(Kind::WINDOWS_NODE_POOL, &self.name()).await.expect("the pool");
            let mut ids: Vec<&str> = machines.iter().map(|machine| text(machine, "/spec/providerID")).collect();
            ids.sort_unstable();
            let status = &pool["status"];
            let vms: BTreeSet<String> = simulated_vms(self.capw.state()).into_iter().map(|vm| vm.name).filter(|name| is_ours(name)).collect();
            let as_told = json!([pool["spec"]["providerIDList"], status["replicas"], status["readyReplicas"], status["desiredReplicas"]]);
            if as_told == json!([ids, asked, asked, asked]) && vms == names(&machines) { Ok(()) } else { Err(format!("{status:#}\n{vms:?}")) }
        };
        wait_for(&format!("{asked} machines, and a VM for each"), LIMIT, settled).await;
        step(format!("{asked} are there"));
        self.calm.set(false);
    }

    /// Checks every write of CAPW, in the order of the answers. Does not return.
    async fn judge(&self) {
        let (mut mark, mut live) = (AuditMark::default(), Live::default());
        loop {
            for event in self.cp.audit_next(&mut mark) {
                // A write whose client was killed gets an error, but may still have succeeded.
                let unsure = event.code == 0 || event.code == 499 || event.code >= 500;
                if (event.code < 300 || unsure) && event.namespace == NAMESPACE && is_ours(&event.name) {
                    self.judge_one(&event, unsure, &mut live);
                }
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    }

    fn judge_one(&self, event: &AuditEvent, unsure: bool, live: &mut Live) {
        let name = &event.name;
        match (event.verb.as_str(), event.resource.as_str()) {
            ("create", "windowsmachines") => {
                assert!(unsure || live.surely.insert(name.clone()), "{name} was made twice");
                live.possibly.insert(name.clone());
                assert!(live.surely.len() <= MOST, "never more than {MOST} were asked for, and there are {:?}", live.surely);
            }
            ("delete", "machines") => {
                live.surely.remove(name);
                if !unsure && live.possibly.remove(name) && !self.is_hit(name) {
                    assert!(live.possibly.len() >= LEAST, "{name} was well and is removed, and never fewer than {LEAST} were asked for: {live:?}");
                }
            }
            ("delete", "windowsmachines") => {
                assert!(!by_capw(event), "{name} was deleted over the head of its Machine");
                live.surely.remove(name);
                live.possibly.remove(name);
            }
            _ => {}
        }
    }

    fn is_hit(&self, name: &str) -> bool {
        FAULTS.iter().any(|(letter, _)| name.ends_with(letter)) || self.failed.borrow().contains(name)
    }

    /// Removes a VM behind CAPW's back from time to time.
    async fn take_vms_away(&self) {
        let mut random = self.random(1);
        loop {
            self.trouble(&mut random, 6.2).await;
            let vms: Vec<_> = simulated_vms(self.capw.state()).into_iter().filter(|vm| vm.is_whole() && is_ours(&vm.name)).collect();
            if vms.is_empty() {
                continue;
            }
            let vm = &vms[random.random_range(0..vms.len())];
            self.failed.borrow_mut().insert(vm.name.clone());
            // CAPW may be removing the VM already.
            if std::fs::rename(self.capw.state().join(&vm.datacenter).join(&vm.directory), self.cp.directory().join(&vm.directory)).is_ok() {
                step(format!("the VM of {} is taken away", vm.name));
            }
        }
    }

    async fn cut_the_hypervisor_off(&self) {
        let mut random = self.random(2);
        for unreachable in [true, false].into_iter().cycle() {
            self.trouble(&mut random, if unreachable { 6.2 } else { 4.0 }).await;
            self.cut(unreachable).await;
        }
    }

    async fn cut(&self, unreachable: bool) {
        let change = json!({"spec": {"simulated": {"unreachable": unreachable}}});
        self.cp.patch(Kind::WINDOWS_HYPERVISOR, &format!("{NAMESPACE}/lab"), &change).await.expect("the hypervisor");
    }

    /// Waits until the next disturbance.
    async fn trouble(&self, random: &mut StdRng, longest: f64) {
        pause(random, longest).await;
        while self.calm.get() {
            pause(random, longest).await;
        }
    }

    /// Writes to objects, so that CAPW's copies of them become outdated.
    async fn write_beside(&self) {
        let mut random = self.random(3);
        for n in 0.. {
            pause(&mut random, 3.0).await;
            let kinds = [Kind::MACHINE_POOL, Kind::WINDOWS_NODE_POOL, Kind::WINDOWS_MACHINE, Kind::MACHINE];
            let kind = kinds[random.random_range(0..kinds.len())];
            let all: Vec<String> = names(&self.cp.list(kind, Some(NAMESPACE)).await).into_iter().collect();
            if let Some(name) = all.get(random.random_range(0..all.len().max(1))) {
                let change = json!({"metadata": {"annotations": {"race.example.com/beside": n.to_string()}}});
                // The object may have been deleted already.
                let _ = self.cp.patch(kind, &format!("{NAMESPACE}/{name}"), &change).await;
            }
        }
    }

    async fn kill(&self) {
        let mut random = self.random(4);
        loop {
            self.trouble(&mut random, 7.2).await;
            self.capw.kill();
            self.capw.process().start();
            self.dead.set(self.dead.get() + 1);
            step("killed");
        }
    }

    /// Plays the MachineHealthCheck and the user: marks failed machines as unhealthy, and deletes failed machines when the rollout has stopped, as
    /// `docs/pools.md` describes.
    async fn remediate(&self) {
        let mut random = self.random(5);
        loop {
            pause(&mut random, 4.0).await;
            let pool = self.cp.get(Kind::WINDOWS_NODE_POOL, &self.name()).await.unwrap_or_default();
            let stopped = condition(&pool, "Ready").is_some_and(|c| c["reason"] == "RolloutStopped");
            for machine in self.cp.list(Kind::WINDOWS_MACHINE, Some(NAMESPACE)).await {
                let name = text(&machine, "/metadata/name");
                let broken = text(&machine, "/status/bootstrap/state") == "failed"
                    || ["NodeJoined", "Ready"].iter().any(|kind| {
                        let found = condition(&machine, kind).map_or("", |found| text(found, "/reason"));
                        ["NodeNeverJoined", "VirtualMachineRemoved"].contains(&found)
                    });
                if !is_ours(name) || !broken {
                    continue;
                }
                self.failed.borrow_mut().insert(name.to_owned());
                let object = format!("{NAMESPACE}/{name}");
                if stopped {
                    step(format!("the rollout has stopped; {name} is deleted"));
                    self.cp.delete(Kind::MACHINE, &object).await;
                } else if random.random_bool(0.5) {
                    let unhealthy = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
                    let _ = self.cp.patch(Kind::MACHINE, &object, &unhealthy).await;
                }
            }
        }
    }
}

/// The machines of the pool that are not being removed, as far as the answers show.
#[derive(Debug, Default)]
struct Live {
    surely: BTreeSet<String>,
    possibly: BTreeSet<String>,
}

fn by_capw(event: &AuditEvent) -> bool {
    event.user == Capw::USER
}

/// Whether a machine belongs to the pool. The bystanders have other names.
fn is_ours(name: &str) -> bool {
    name.starts_with("pool-")
}

/// Waits between two disturbances: from 20 ms to 20 ms · e^`longest`, short as often as long. Nothing depends on the length.
async fn pause(random: &mut StdRng, longest: f64) {
    let milliseconds = 20.0 * random.random_range(0.0..longest).exp();
    tokio::time::sleep(Duration::from_millis(milliseconds as u64)).await;
}
