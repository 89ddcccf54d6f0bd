//! One run: `machines` machines are created, rest, survive a restart, lose a VM, and are deleted. It must not judge.

mod mishaps;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use capw_libvirtd::Daemon;
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cost::{AUDIT_POLICY, Requests, Versions, calls, less, wire_requests};
use crate::workers::{Workers, by_capw};
use crate::world::{AuditEvent, Capw, ControlPlane, Kind, Options, Product, Simulator, Waits, hardware, step, text};

/// After this long without a write, the last change counts as reconciled.
const QUIET: Duration = Duration::from_secs(10);
/// How long machines rest while calls and writes are counted.
const REST: Duration = Duration::from_secs(60);
/// The limit for steps that must happen within seconds.
const SOON: Duration = Duration::from_secs(120);

/// What the machines belong to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// A MachinePool with a WindowsNodePool.
    #[default]
    Pool,
    /// A MachineDeployment with templates.
    Deployment,
}

/// Where their VMs are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Hypervisor {
    /// Without delays.
    #[default]
    Simulated,
    /// A simulated vCenter.
    Vsphere,
    /// A simulated Proxmox VE cluster.
    Proxmox,
    /// A libvirt daemon with real QEMU VMs, whose code is translated: times say little.
    Libvirt,
}

impl Display for Hypervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Simulated => "simulated",
            Self::Vsphere => "vsphere",
            Self::Proxmox => "proxmox",
            Self::Libvirt => "libvirt",
        })
    }
}

impl Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pool => "MachinePool",
            Self::Deployment => "MachineDeployment",
        })
    }
}

impl Group {
    fn kind(self) -> Kind {
        match self {
            Self::Pool => Kind::MACHINE_POOL,
            Self::Deployment => Kind::MACHINE_DEPLOYMENT,
        }
    }

    /// The objects that `workers` applies for this group.
    fn objects(self, workers: &Workers) -> Vec<Value> {
        let own = |kind: &str, api: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": workers.cluster, "namespace": workers.namespace}, "spec": spec});
        let mut objects = workers.objects();
        if self == Self::Deployment {
            return objects;
        }
        objects.retain(|object| !["MachineDeployment", "WindowsMachineTemplate", "WindowsBootstrapConfigTemplate"].contains(&text(object, "/kind")));
        objects.push(own("WindowsBootstrapConfig", "bootstrap.cluster.x-k8s.io/v1alpha1", workers.bootstrap.clone()));
        let pool = json!({"template": {"machine": workers.machine}});
        objects.push(own("WindowsNodePool", "infrastructure.cluster.x-k8s.io/v1alpha1", pool));
        let mut machine = workers.machine_spec();
        for (field, group, kind) in
            [("/bootstrap/configRef", "bootstrap", "WindowsBootstrapConfig"), ("/infrastructureRef", "infrastructure", "WindowsNodePool")]
        {
            let reference = json!({"apiGroup": format!("{group}.cluster.x-k8s.io"), "kind": kind, "name": workers.cluster});
            *machine.pointer_mut(field).expect("a reference") = reference;
        }
        let spec = json!({"clusterName": workers.cluster, "replicas": workers.replicas, "template": {"spec": machine}});
        objects.push(own("MachinePool", "cluster.x-k8s.io/v1beta2", spec));
        objects
    }
}

/// The cost of one stage.
#[derive(Debug, Default)]
pub struct Stage {
    /// Requests of CAPW.
    pub requests: Requests,
    /// Calls of the driver.
    pub calls: BTreeMap<String, usize>,
    /// Requests of the driver to a real hypervisor.
    pub wire: BTreeMap<String, usize>,
    /// Time until the last machine was Ready, or deleted.
    pub took: Duration,
    /// Processor time of CAPW, without the guests.
    pub processor: Duration,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Life {
    /// The owner of the machines.
    pub group: Group,
    /// The hypervisor of the VMs.
    pub on: Hypervisor,
    /// The number of machines requested.
    pub machines: usize,
    /// The number of machines that were Ready within the limit.
    pub came: usize,
    /// The stage from none to all.
    pub create: Stage,
    /// The stage in which nothing happens, for a minute.
    pub rest: Stage,
    /// The stage from all to none.
    pub delete: Stage,
    /// Memory of CAPW with all machines Ready, in bytes.
    pub resident: u64,
    /// How long objects waited to be reconciled until all machines were Ready.
    pub waits: Waits,
    /// Times from each Machine to its Node, shortest first.
    pub joined: Vec<Duration>,
    /// Time from the start of the process to its first write, with all machines present and one to be created.
    pub restart: Duration,
    /// Time until the condition of a machine reported that its VM was removed externally.
    pub noticed: Duration,
    /// Times until the condition of each machine reported that a hypervisor that does not answer is unreachable, shortest first.
    pub told: Vec<Duration>,
}

struct Run {
    capw: Capw,
    daemon: Option<Daemon>,
    simulator: Option<Simulator>,
    cp: ControlPlane,
    workers: Workers,
    group: Group,
    versions: Versions,
    limit: Duration,
}

/// Measures the life of `machines` machines of a group; `limit` applies to their creation and to their deletion.
pub async fn measure(machines: usize, group: Group, on: Hypervisor, limit: Duration) -> Life {
    let cp = ControlPlane::start(Options {
        audit_policy: AUDIT_POLICY,
        // Room for 2,000 nodes.
        controller_manager: vec!["--node-cidr-mask-size=27".to_owned()],
        ..Options::default().named("bench")
    })
    .await;
    // Guests run in a process of their own, because they are not measured.
    let capw = Capw::start(&cp, &["--simulated-guests=false"]).await;
    let guests = capw.guests(&cp);
    guests.start();
    let mut workers = Workers { replicas: 0, driver: json!({"simulated": {"delays": no_delays()}}), ..Workers::new("bench", &cp).await };
    let daemon = (on == Hypervisor::Libvirt).then(|| hardware::daemon("bench", &cp).expect("a machine with libvirt and QEMU"));
    if let Some(daemon) = &daemon {
        hardware::shrink(&mut workers.machine, &mut workers.bootstrap);
        workers.driver = hardware::hypervisor(daemon);
    }
    let product = match on {
        Hypervisor::Simulated | Hypervisor::Libvirt => None,
        Hypervisor::Vsphere => Some(Product::Vsphere),
        Hypervisor::Proxmox => Some(Product::Proxmox),
    };
    let simulator = workers.go_to(product, &cp, &capw).await;
    cp.apply_objects(&group.objects(&workers)).await;
    cp.wait_condition(Kind::EXTERNAL_CONTROL_PLANE, &workers.name(&workers.cluster), "Ready", "True", SOON).await;
    let mut run = Run { capw, daemon, simulator, cp, workers, group, versions: Versions::default(), limit };
    let start = run.cp.audit_mark();
    run.quiet().await;
    // Versions of the objects that exist already.
    run.versions.count(&run.cp.audit_since(start));

    let mut life = Life { group, on, machines, ..Life::default() };
    let (mut came, mut joined) = (0, Vec::new());
    life.create = run
        .stage(async |run| {
            let mark = run.cp.audit_mark();
            came = run.scale(machines, "readyReplicas").await;
            joined = times_to_join(&run.cp.audit_since(mark));
        })
        .await;
    (life.came, life.joined) = (came, joined);
    life.resident = run.capw.process().resident_bytes().unwrap_or_default();
    life.waits = Waits::of(&run.capw.metrics());
    life.rest = run.stage(async |_| tokio::time::sleep(REST).await).await;
    (life.restart, life.noticed) = run.restart_and_loss(machines).await;
    life.told = run.silence().await;
    life.delete = run
        .stage(async |run| {
            run.scale(0, "replicas").await;
        })
        .await;
    drop(guests);
    life
}

fn no_delays() -> Value {
    json!({"createMilliseconds": 0, "bootMilliseconds": 0, "joinMilliseconds": 0, "stopMilliseconds": 0})
}

impl Run {
    /// Runs `work`, waits until CAPW has reconciled it, and returns its cost.
    async fn stage(&mut self, work: impl AsyncFnOnce(&mut Self)) -> Stage {
        let mark = self.cp.audit_mark();
        let (before, wire, processor) = (calls(&self.capw), wire_requests(&self.capw), self.capw.process().processor_seconds().unwrap_or_default());
        let start = Instant::now();
        work(self).await;
        let took = start.elapsed();
        self.quiet().await;
        let used = self.capw.process().processor_seconds().unwrap_or_default() - processor;
        Stage {
            requests: self.versions.count(&self.cp.audit_since(mark)),
            calls: less(&calls(&self.capw), &before),
            wire: less(&wire_requests(&self.capw), &wire),
            took,
            processor: Duration::try_from_secs_f64(used).unwrap_or_default(),
        }
    }

    /// Applies the group with its number of machines.
    async fn ask(&self) {
        let objects = self.group.objects(&self.workers);
        let group = objects.last().expect("the group is the last");
        self.cp.apply_objects(std::slice::from_ref(group)).await;
    }

    /// Sets the number of machines and waits until a count in the group's status equals it; returns the count that was reached
    /// within the limit.
    async fn scale(&mut self, machines: usize, count: &str) -> usize {
        self.workers.replicas = machines;
        self.ask().await;
        let start = Instant::now();
        let mut told = Instant::now();
        loop {
            let group = self.cp.get(self.group.kind(), &self.workers.name(&self.workers.cluster)).await;
            let status = group.as_ref().map_or(&Value::Null, |group| &group["status"]);
            let seen = &status["observedGeneration"] == group.as_ref().map_or(&Value::Null, |d| &d["metadata"]["generation"]);
            let now = usize::try_from(status[count].as_u64().unwrap_or_default()).expect("a count of machines");
            if seen && now == machines {
                return machines;
            }
            if start.elapsed() > self.limit {
                step(format!("stopped after {} s with {now} instead of {machines}", self.limit.as_secs()));
                return now;
            }
            if told.elapsed() > Duration::from_secs(30) {
                told = Instant::now();
                step(format!("{now} machines of {machines} after {} s", start.elapsed().as_secs()));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn names(&self) -> Vec<String> {
        let machines = self.cp.list(Kind::WINDOWS_MACHINE, Some(&self.workers.namespace)).await;
        machines.iter().map(|machine| text(machine, "/metadata/name").to_owned()).collect()
    }

    /// Waits until CAPW has written nothing for a while; at most until the limit.
    async fn quiet(&self) {
        let (start, mut since, mut mark) = (Instant::now(), Instant::now(), self.cp.audit_mark());
        while since.elapsed() < QUIET && start.elapsed() < self.limit {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if self.cp.audit_next(&mut mark).iter().any(|event| by_capw(event) && event.is_write()) {
                since = Instant::now();
            }
        }
    }
}

/// Times from the creation of each Machine to the registration of its Node, which has the same name; shortest first.
fn times_to_join(events: &[AuditEvent]) -> Vec<Duration> {
    let mut made: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut times = Vec::new();
    for event in events.iter().filter(|event| event.code == 201 || event.code == 200) {
        if event.resource == "machines" && event.subresource.is_empty() && event.code == 201 {
            made.entry(&event.name).or_insert(event.time);
        }
        if event.resource == "nodes" && event.verb == "create" && event.user.starts_with("system:node:") {
            let machine = event.user.trim_start_matches("system:node:");
            times.extend(made.get(machine).and_then(|since| Duration::try_from(event.time.duration_since(*since)).ok()));
        }
    }
    times.sort();
    times
}
