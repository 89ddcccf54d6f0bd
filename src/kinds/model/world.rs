//! The life of a standalone pool in one process and in paused time: its controllers, an API server in memory, simulated VMs, and guests
//! that become Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::plan::Plan;
use crate::api::name::VmUuid;
use crate::api::namespaces::Namespaces;
use crate::bootstrap::paths::JOIN_CONFIG;
use crate::bootstrap::read::Payload;
use crate::engine::controller::ControllerLoop;
use crate::engine::roles::Roles;
use crate::engine::watch::{Selection, Watching};
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::kinds::{Parts, run};
use crate::kube_api::cluster::Cluster;
use crate::kube_api::events::Events;
use crate::kube_api::workloads::Workloads;
use crate::telemetry::{Metrics, Readiness};

pub const INFRASTRUCTURE: &str = "apis/infrastructure.cluster.x-k8s.io/v1alpha1";
/// The interval between two polls of the world.
const POLL: Duration = Duration::from_millis(250);
/// The time limit for each stage, on the clock of the world.
const LIMIT: Duration = Duration::from_secs(600);
/// After this time, running machines need no more work.
const SETTLED: Duration = Duration::from_secs(120);

/// The most machines that may live at the same time: never more are requested, including the surplus of a rollout.
const MOST: usize = 2;

/// The requests and calls of the controllers.
pub struct Cost {
    pub requests: Vec<String>,
    /// Requests that changed nothing.
    pub without_effect: Vec<String>,
    /// Calls of the driver, by the name of its method.
    pub calls: Vec<&'static str>,
}

/// One life.
pub struct World {
    api: Api,
    state: PathBuf,
    start: Instant,
    /// Machines that have a VM, by the directory of the VM.
    known: BTreeMap<String, String>,
    /// The number of token secrets created so far. No two are the same, whichever process created them.
    token_secrets: Arc<AtomicUsize>,
    calls: Arc<Mutex<Vec<&'static str>>>,
    process: Option<(tokio::task::JoinHandle<()>, CancellationToken)>,
}

/// A clock that follows the runtime's.
fn clock(start: Instant) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    let first = Timestamp::from_second(1_800_000_000).unwrap();
    Arc::new(move || first + jiff::SignedDuration::try_from(start.elapsed()).unwrap())
}

impl World {
    pub fn new(plan: &Plan) -> Self {
        let start = Instant::now();
        let api = Api::new(plan, clock(start));
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\nclusters:\n- name: c\n  cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: CA}\nusers:\n- name: u\n  user: {token: t}\n";
        let ca = rcgen::generate_simple_self_signed(vec!["api".into()]).unwrap().cert.pem();
        let base64 = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        let kubeconfig = kubeconfig.replace("CA", &base64(&ca));
        let own = |name: &str| json!({"name": name, "namespace": "lab"});
        api.put("api/v1/secrets", json!({"apiVersion": "v1", "kind": "Secret", "metadata": own("there"), "data": {"value": base64(&kubeconfig)}}));
        api.put("api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
        let hypervisor = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor", "metadata": own("h"), "spec": {"simulated": {"delays": {"createMilliseconds": 1500}, "failingCalls": plan.failing_calls()}}});
        api.put(&format!("{INFRASTRUCTURE}/windowshypervisors"), hypervisor);
        let pool = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsNodePool", "metadata": own("win"), "spec": {
            "cluster": {"kubeconfigSecretRef": {"name": "there", "key": "value"}}, "replicas": 2, "version": "v1.36.3",
            "template": {"machine": {"image": "windows-server-2022"}, "bootstrap": {"windowsRelease": "2022"}}}});
        api.put(&format!("{INFRASTRUCTURE}/windowsnodepools"), pool);
        let state = std::env::temp_dir().join(format!("capw-model-{}", uuid::Uuid::new_v4()));
        Self { api, state, start, known: BTreeMap::new(), token_secrets: Arc::default(), calls: Arc::default(), process: None }
    }

    /// Starts the controllers, as a process does.
    fn begin(&mut self) {
        let (client, stop) = (self.api.client("management"), CancellationToken::new());
        let (metrics, readiness) = (Metrics::default(), Readiness::default());
        let controllers = ControllerLoop {
            concurrency: 4,
            selection: Selection::default(),
            metrics: metrics.clone(),
            written: Default::default(),
            passes: Default::default(),
            stop: stop.clone(),
        };
        let watching = Watching { client: client.clone(), selection: Selection::default(), metrics, readiness, stop: stop.clone() };
        let calls = self.calls.clone();
        let settings = DriverSettings {
            hook: Arc::new(move |call| calls.lock().push(call.call)),
            ..DriverSettings::uncounted(self.state.clone(), 4, clock(self.start))
        };
        let (cluster, there) = (Cluster::new(client.clone()), self.api.client("workload"));
        let token_secrets = self.token_secrets.clone();
        let parts = Parts {
            workloads: Workloads::connected(cluster.clone(), Arc::new(move |_| Ok(there.clone())), Namespaces::All),
            cluster,
            events: Events::new(client, "model", Arc::new(|_| ())),
            drivers: Arc::new(Drivers::new(settings)),
            clock: clock(self.start),
            new_token_secret: Arc::new(move || format!("{:016}", token_secrets.fetch_add(1, Ordering::Relaxed)).into()),
            approve_serving_certificates: true,
            image: None,
            autoscaler: None,
        };
        let roles = Roles { infrastructure: true, bootstrap: true, control_plane: false };
        let process = tokio::spawn(async move { run(parts, roles, &controllers, &watching).await });
        self.process = Some((process, stop));
    }

    async fn end(&mut self) {
        if let Some((process, stop)) = self.process.take() {
            process.abort();
            let _ = process.await;
            stop.cancel();
        }
    }

    /// VMs by directory, with their name and whether they run.
    fn vms(&self) -> Vec<(String, String, bool)> {
        let home = self.state.join("lab.h");
        let entries = std::fs::read_dir(&home).into_iter().flatten().filter_map(Result::ok).filter(|entry| entry.path().is_dir());
        let read = |entry: std::fs::DirEntry| {
            let record = std::fs::read(entry.path().join("vm.json")).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())?;
            Some((entry.file_name().into_string().ok()?, record["name"].as_str()?.to_owned(), record["power"] == "On"))
        };
        entries.filter_map(read).collect()
    }

    fn machines(&self) -> Vec<Value> {
        self.api.all("windowsmachines")
    }

    /// Polls the world: the guests act, and the invariants are checked.
    async fn poll(&mut self) {
        sleep(POLL).await;
        if self.api.take_crash() {
            self.end().await;
            self.begin();
        }
        self.api.collect();
        let (vms, machines) = (self.vms(), self.machines());
        let living = machines.iter().filter(|machine| machine["metadata"]["deletionTimestamp"].is_null()).count();
        assert!(living <= MOST, "{living} machines live, and {MOST} were asked for");
        let of = |vm: &str| machines.iter().find(|machine| VmUuid::of(machine["metadata"]["uid"].as_str().unwrap()).to_string() == vm);
        for (vm, name) in &self.known {
            let is_alive = of(vm).is_some_and(|machine| machine["metadata"]["deletionTimestamp"].is_null());
            assert!(!is_alive || vms.iter().any(|(there, ..)| there == vm), "the VM of {name}, which lives, was removed");
        }
        let names: BTreeSet<&str> = vms.iter().map(|(_, name, _)| name.as_str()).collect();
        assert_eq!(names.len(), vms.len(), "two VMs for a machine: {vms:?}");
        for (vm, name, runs) in &vms {
            assert!(of(vm).is_some(), "the VM of {name} has no machine any more");
            if *runs && !self.known.contains_key(vm) {
                if let Some(machine) = of(vm).filter(|machine| machine["metadata"]["deletionTimestamp"].is_null()) {
                    self.check_token(&machine["metadata"]["name"]);
                }
                let id = format!("windows://h/{vm}");
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}}, "spec": {"providerID": id},
                    "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": clock(self.start)().to_string()}]}});
                self.api.put("api/v1/nodes", node);
                self.known.insert(vm.clone(), name.clone());
            }
        }
        self.known.retain(|vm, _| vms.iter().any(|(there, ..)| there == vm));
    }

    /// The guest of a machine must join with an existing token, with both of its halves. The data of the guest must hold that token too.
    fn check_token(&self, machine: &Value) {
        let secrets = self.api.all("secrets");
        let engine = &base64::engine::general_purpose::STANDARD;
        let text = |secret: &Value, key: &str| {
            let bytes = base64::Engine::decode(engine, secret["data"][key].as_str().unwrap_or_default()).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let of_machine = secrets.iter().find(|secret| secret["metadata"]["name"] == *machine).unwrap_or(&Value::Null);
        let held = text(of_machine, "token");
        let is_it = |secret: &Value| format!("{}.{}", text(secret, "token-id"), text(secret, "token-secret")) == held;
        assert!(secrets.iter().any(is_it), "the guest of {machine} joins with {held:?}, which is no token");
        let payload = Payload::from_user_data(text(of_machine, "value").as_bytes()).unwrap();
        let join = String::from_utf8_lossy(payload.file(JOIN_CONFIG).unwrap());
        assert!(join.contains(&held), "the data of the guest of {machine} does not hold {held:?}: {join}");
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            let seen = || format!("machines {:?}, VMs {:?}, Nodes {}", self.machines(), self.vms(), self.api.all("nodes").len());
            assert!(since.elapsed() < LIMIT, "never came: {what}; {}", seen());
            self.poll().await;
        }
    }

    fn has(&self, count: usize) -> bool {
        let pool = self.api.all("windowsnodepools");
        let ready = pool.first().map_or(0, |pool| pool["status"]["readyReplicas"].as_u64().unwrap_or(0));
        self.machines().len() == count
            && self.vms().len() == count
            && self.api.all("nodes").len() == count
            && ready == count as u64
            && self.tokens() == 0
    }

    fn tokens(&self) -> usize {
        self.api.all("secrets").iter().filter(|secret| secret["type"] == "bootstrap.kubernetes.io/token").count()
    }

    /// Deletes the machine, as a user does: the pool creates another one.
    async fn replace(&mut self) {
        let name = |machine: &Value| machine["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let old = self.machines().first().map(name).unwrap_or_default();
        self.api.delete(&format!("{INFRASTRUCTURE}/windowsmachines"), "lab", &old);
        self.until("one in its place", |world| world.has(1) && world.machines().iter().all(|machine| name(machine) != old)).await;
    }

    /// The cost since it was taken last.
    fn take_cost(&self) -> Cost {
        let (requests, without_effect) = self.api.take_requests();
        Cost { requests, without_effect, calls: std::mem::take(&mut *self.calls.lock()) }
    }

    /// Runs two machines without events for that time, and returns the cost of that time.
    pub async fn rest(mut self, time: Duration) -> Cost {
        self.begin();
        self.until("two machines", |world| world.has(2)).await;
        sleep(SETTLED).await;
        self.take_cost();
        sleep(time).await;
        let cost = self.take_cost();
        self.end().await;
        cost
    }

    /// Runs a whole life and returns its cost.
    pub async fn live(mut self) -> Cost {
        let pools = format!("{INFRASTRUCTURE}/windowsnodepools");
        self.begin();
        self.until("two machines", |world| world.has(2)).await;
        self.api.merge(&pools, "lab", "win", &json!({"spec": {"replicas": 1}}));
        self.until("one machine", |world| world.has(1)).await;
        self.api.merge(&pools, "lab", "win", &json!({"spec": {"template": {"machine": {"image": "windows-server-2025"}}}}));
        let is_new = |world: &Self| world.machines().iter().all(|machine| machine["spec"]["image"] == "windows-server-2025");
        self.until("another machine", |world| world.has(1) && is_new(world)).await;
        self.replace().await;
        // A machine joins while everything is deleted.
        self.api.merge(&pools, "lab", "win", &json!({"spec": {"replicas": 2}}));
        self.until("a token", |world| world.tokens() > 0).await;
        self.api.delete(&pools, "lab", "win");
        let left = |world: &Self| {
            ["windowsmachines", "windowsbootstrapconfigs", "windowsnodepools", "nodes"].map(|kind| world.api.all(kind).len()).iter().sum::<usize>()
        };
        // The kubeconfig stays.
        self.until("nothing", |world| left(world) == 0 && world.vms().is_empty() && world.api.all("secrets").len() == 1).await;
        self.end().await;
        self.take_cost()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}
