//! Story *restart*: `capw` is killed again and again, right after each kind of effect and at random moments, while machines are
//! made, replaced and removed. The end is the one of an undisturbed run, there are never two VMs for a machine, and none is left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capw::api::name::VmUuid;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::effects::{Effect, Effects};
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, Product, simulated_vms, step, text, wait_for};

/// For one wait. All kills may fall into it, and each costs the time of a start: eight seconds on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);
/// Kills at random moments, beside those after effects.
const RANDOM_KILLS: usize = 20;
/// Between two looks for the next effect: a program that does not wait does about one effect in that time.
const LOOK: Duration = Duration::from_millis(3);

#[test]
fn killed_at_every_effect_it_ends_the_same() {
    killed_again_and_again("restart", None);
}

/// The same behind a vCenter.
#[test]
fn killed_at_every_effect_it_ends_the_same_on_vsphere() {
    killed_again_and_again("restart-on-vsphere", Some(Product::Vsphere));
}

/// The same behind a Proxmox VE cluster.
#[test]
fn killed_at_every_effect_it_ends_the_same_on_proxmox() {
    killed_again_and_again("restart-on-proxmox", Some(Product::Proxmox));
}

fn killed_again_and_again(name: &str, on: Option<Product>) {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named(name)).await;
        let capw = Capw::start(&cp, &[]).await;
        let seed = world::seed();
        let kills = RefCell::new(Kills::new(seed));
        let mut workers = Workers { replicas: 3, ..Workers::new("restart", &cp).await };
        let lag = on.map_or(Duration::ZERO, Product::lag);
        let _simulator = workers.go_to(on, &cp, &capw).await;
        tokio::select! {
            () = story(&cp, &capw, workers, &kills) => {}
            () = kill_on(&cp, &capw, &kills) => {}
            () = workers::watch_vms(&cp, &capw, lag) => {}
        }
        kills.borrow().print();
    });
}

/// Makes, replaces, shrinks and deletes.
async fn story(cp: &ControlPlane, capw: &Capw, mut workers: Workers, kills: &RefCell<Kills>) {
    workers.apply(cp).await;
    workers.wait_settled(cp, cp, LIMIT).await;
    step(format!("3 nodes, after {} kills", kills.borrow().done.len()));

    workers.template = "second".to_owned();
    workers.machine = json!({"image": "windows-server-2025", "cpus": 2, "memory": "8Gi"});
    workers.bootstrap_template = "second".to_owned();
    workers.bootstrap["windowsRelease"] = json!("2025");
    cp.apply_objects(&[workers.machine_template(), workers.bootstrap_template(), workers.machine_deployment()]).await;
    workers.wait_settled(cp, cp, LIMIT).await;
    step(format!("3 replaced, after {} kills", kills.borrow().done.len()));

    // Until there was a kill after everything that happens while machines live; what happens at the end is left for the end.
    for replicas in [1, 4].into_iter().cycle().take(12) {
        workers.replicas = replicas;
        cp.apply_objects(&[workers.machine_deployment()]).await;
        workers.wait_settled(cp, cp, LIMIT).await;
        step(format!("{replicas} nodes, after {} kills", kills.borrow().done.len()));
        if kills.borrow().is_over() {
            break;
        }
    }
    exactly_these_vms(cp, capw, &workers).await;

    cp.delete(Kind::CLUSTER, &workers.name(&workers.cluster)).await;
    workers.wait_gone(cp, LIMIT).await;
    workers::wait_nothing_left(cp, capw, LIMIT).await;
    let missing = kills.borrow().missing();
    assert!(missing.is_empty(), "these effects were never followed by a kill: {missing:?}");
}

/// At rest there is a VM for each WindowsMachine, with the identity computed from it, and no other.
async fn exactly_these_vms(cp: &ControlPlane, capw: &Capw, workers: &Workers) {
    wait_for("a VM for each machine and no other", LIMIT, || async {
        let machines = cp.list(Kind::WINDOWS_MACHINE, Some(&workers.namespace)).await;
        let mut wanted: Vec<String> = machines.iter().map(|machine| VmUuid::of(text(machine, "/metadata/uid")).to_string()).collect();
        wanted.sort();
        let vms: Vec<String> = simulated_vms(capw.state()).into_iter().map(|vm| vm.directory).collect();
        if vms == wanted && vms.len() == workers.replicas { Ok(()) } else { Err(format!("{vms:?} instead of {wanted:?}")) }
    })
    .await;
}

/// Kills and starts `capw` whenever its time has come, until the story ends.
async fn kill_on(cp: &ControlPlane, capw: &Capw, kills: &RefCell<Kills>) {
    let mut effects = Effects::default();
    loop {
        let news = effects.next(cp, capw);
        if let Some(why) = kills.borrow_mut().next(&news) {
            capw.kill();
            capw.process().start();
            step(format!("killed {why}"));
        }
        assert!(capw.process().is_running(), "capw ended by itself; its log ends:\n{}", capw.process().log_end());
        tokio::time::sleep(LOOK).await;
    }
}

/// When to kill.
struct Kills {
    random: StdRng,
    next_random: Instant,
    randoms: usize,
    /// For each effect: how many times it may still happen before the kill; gone when that was done.
    pending: BTreeMap<Effect, usize>,
    done: Vec<String>,
}

impl Kills {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let pending = Effect::ALL.into_iter().map(|effect| (effect, if once(effect) { 0 } else { random.random_range(0..2) })).collect();
        Self { random, next_random: Instant::now(), randoms: 0, pending, done: Vec::new() }
    }

    fn next(&mut self, news: &[(Effect, String)]) -> Option<String> {
        let why = self.after_effect(news).or_else(|| self.at_random())?;
        // From 20 ms to 10 s: some come before the new process has looked around, some when there is nothing left to do.
        let gap = 20.0 * (self.random.random_range(0.0..6.2_f64)).exp();
        self.next_random = Instant::now() + Duration::from_millis(gap as u64);
        self.done.push(why.clone());
        Some(why)
    }

    fn after_effect(&mut self, news: &[(Effect, String)]) -> Option<String> {
        // What the same object has gone on from is over, unless it does not come again.
        let last = |at: usize, name: &String| news[at + 1..].iter().all(|(_, later)| later != name);
        let fresh = news.iter().enumerate().filter(|(at, (effect, name))| once(*effect) || last(*at, name)).map(|(_, news)| news);
        // A busy machine shows several effects at once: the kill comes after each of them.
        let mut due = Vec::new();
        for (effect, name) in fresh {
            match self.pending.get_mut(effect) {
                Some(0) => {
                    self.pending.remove(effect);
                    due.push(format!("{effect:?} {name}"));
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        (!due.is_empty()).then(|| format!("after {}", due.join(", ")))
    }

    fn at_random(&mut self) -> Option<String> {
        if self.randoms == RANDOM_KILLS || Instant::now() < self.next_random {
            return None;
        }
        self.randoms += 1;
        Some(format!("at random, {} of {RANDOM_KILLS}", self.randoms))
    }

    /// Whether only what happens at the end is pending.
    fn is_over(&self) -> bool {
        self.randoms == RANDOM_KILLS && self.pending.is_empty()
    }

    fn missing(&self) -> Vec<Effect> {
        self.pending.keys().copied().collect()
    }

    fn print(&self) {
        println!("restart: killed {} times, {} of them at random", self.done.len(), self.randoms);
    }
}

/// Effects that a cluster's life may have only once, or that come in one go.
fn once(effect: Effect) -> bool {
    matches!(
        effect,
        Effect::HypervisorReported
            | Effect::ClusterReported
            | Effect::KubeconfigWritten
            | Effect::EndpointSet
            | Effect::ControlPlaneReported
            | Effect::JoinRightsGiven
    )
}
