//! One run: so many machines come, rest, survive a restart, lose a VM, and go. It must not judge.

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

/// Without a write for so long, the last change is taken to be worked off.
const QUIET: Duration = Duration::from_secs(10);
/// How long machines rest while calls and writes are counted.
const REST: Duration = Duration::from_secs(60);
/// For what must happen within seconds.
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

    /// The objects that `workers` applies for it.
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

/// What one stage has cost.
#[derive(Debug, Default)]
pub struct Stage {
    /// Requests of CAPW.
    pub requests: Requests,
    /// Calls of the driver.
    pub calls: BTreeMap<String, usize>,
    /// Requests of the driver to a real hypervisor.
    pub wire: BTreeMap<String, usize>,
    /// Until the last machine was there, or gone.
    pub took: Duration,
    /// Processor time of CAPW, without guests.
    pub processor: Duration,
}

/// What a run has shown.
#[derive(Debug, Default)]
pub struct Life {
    /// Where the VMs were.
    pub on: Hypervisor,
    /// How many were wanted.
    pub machines: usize,
    /// How many were Ready within the limit.
    pub came: usize,
    /// From none to all.
    pub create: Stage,
    /// Nothing happens, for a minute.
    pub rest: Stage,
    /// From all to none.
    pub delete: Stage,
    /// Memory of CAPW with all machines Ready, in bytes.
    pub resident: u64,
    /// How long objects waited for their pass until all machines were Ready.
    pub waits: Waits,
    /// From the Machine to its Node, one for each, shortest first.
    pub joined: Vec<Duration>,
    /// From the start of the process to its first write, with all machines there and one to be made.
    pub restart: Duration,
    /// Until the condition of a machine said that its VM was removed from outside.
    pub noticed: Duration,
    /// Until the condition of each machine said that a hypervisor that answers nothing cannot be reached, shortest first.
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

/// Measures a life of so many machines of a group; `limit` is for their coming and for their going.
pub async fn measure(machines: usize, group: Group, on: Hypervisor, limit: Duration) -> Life {
    let policy = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(policy.path(), AUDIT_POLICY).expect("a temporary file can be written");
    let cp = ControlPlane::start(Options {
        api_server: vec![format!("--audit-policy-file={}", policy.path().display())],
        // Room for 2,000 nodes.
        controller_manager: vec!["--node-cidr-mask-size=27".to_owned()],
        ..Options::default().named("bench")
    })
    .await;
    // Guests in a process of their own: they are not what is measured.
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
    // Versions of what is there already.
    run.versions.count(&run.cp.audit_since(start));

    let mut life = Life { on, machines, ..Life::default() };
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
    /// Does something, waits until it is worked off, and tells what it has cost.
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

    /// Writes the number of machines.
    async fn ask(&self) {
        let objects = self.group.objects(&self.workers);
        let group = objects.last().expect("the group is the last");
        self.cp.apply_objects(std::slice::from_ref(group)).await;
    }

    /// Sets the number of machines and waits until a count in the group's status is that; gives what it is when the
    /// limit is reached.
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

    /// Waits until CAPW has written nothing for a while; at most for the limit.
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

/// From the creation of each Machine to the registration of its Node, which has the same name; shortest first.
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
