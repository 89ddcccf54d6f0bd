//! Story *restart*: `capw` is killed repeatedly, right after each kind of effect and at random moments, while machines are created, replaced and
//! removed. The result equals an undisturbed run's, no machine ever has two VMs, and no VM is left.

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

/// The limit for one wait. All kills may fall into it, and each costs the time of a start: eight seconds on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);
/// The number of kills at random moments, in addition to the kills after effects.
const RANDOM_KILLS: usize = 20;
/// The time between two polls for the next effect. A program that does not wait produces about one effect in that time.
const LOOK: Duration = Duration::from_millis(3);

#[test]
fn killed_at_every_effect_it_ends_the_same() {
    killed_again_and_again("restart", None);
}

/// The story with VMs on a vCenter.
#[test]
fn killed_at_every_effect_it_ends_the_same_on_vsphere() {
    killed_again_and_again("restart-on-vsphere", Some(Product::Vsphere));
}

/// The story with VMs on a Proxmox VE cluster.
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

/// Creates, replaces, shrinks and deletes.
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

    // Scales until there was a kill after every effect of living machines. The effects of the end follow later.
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

/// Waits until each WindowsMachine has a VM with the identity computed from it, and no other VM exists.
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

/// Kills and restarts `capw` whenever a kill is due, until the story ends.
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

/// The times of the kills.
struct Kills {
    random: StdRng,
    next_random: Instant,
    randoms: usize,
    /// For each effect, how many times it may still happen before the kill. The kill removes the entry.
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
        // From 20 ms to 10 s: some kills come before the new process has read anything, some when it has no work left.
        let gap = 20.0 * (self.random.random_range(0.0..6.2_f64)).exp();
        self.next_random = Instant::now() + Duration::from_millis(gap as u64);
        self.done.push(why.clone());
        Some(why)
    }

    fn after_effect(&mut self, news: &[(Effect, String)]) -> Option<String> {
        // An effect that the same object has moved on from is too old, except if it happens only once.
        let last = |at: usize, name: &String| news[at + 1..].iter().all(|(_, later)| later != name);
        let fresh = news.iter().enumerate().filter(|(at, (effect, name))| once(*effect) || last(*at, name)).map(|(_, news)| news);
        // A busy machine shows several effects at once, and the kill counts for each of them.
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

    /// Whether only the effects of the end are pending.
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

/// Whether a cluster's life may have this effect only once, or several times in quick succession.
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
