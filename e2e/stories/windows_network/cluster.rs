//! A cluster with Flannel, whose network CAPW extends to real Windows nodes.

use std::sync;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::node::{FAULT, Programs, address, guest_of};
use super::probe::name_resolution;
use super::{LIMIT, NAMESPACE};
use crate::workers::Workers;
use crate::world::wine::WineGuest;
use crate::world::{AuditMark, Capw, ControlPlane, HostProcesses, Kind, Options, seed, step, text, wait_for, wine};

/// Prepares a node beyond its programs; `None` until that is possible.
type Besides = fn(&WineGuest, &Value) -> Option<()>;

pub struct Cluster {
    besides: Besides,
    pub programs: Programs,
    pub pods: Mutex<HostProcesses>,
    random: sync::Mutex<StdRng>,
    workers: Workers,
    capw: Capw,
    pub cp: ControlPlane,
    /// The mark before the Windows nodes were created.
    pub joins: AuditMark,
}

impl Cluster {
    /// Starts the Linux side of the recording, which `prepare` may fix, and `replicas` Windows nodes, and waits until they are Ready.
    pub async fn start(
        name: &str,
        recording: &str,
        replicas: usize,
        programs: Programs,
        prepare: impl AsyncFn(&ControlPlane, &str),
        besides: Besides,
    ) -> Self {
        let options = Options { scheduler: true, ..Options::default() };
        let cp = ControlPlane::start(options.named(&format!("windows-{name}"))).await;
        cp.apply_recording(recording).await;
        name_resolution(&cp).await;
        let capw = Capw::start(&cp, &[&format!("--wine-programs={}", wine::programs().display()), "--image=registry.example.com/capw:v0"]).await;
        let workers = Workers { replicas: 0, driver: json!({"simulated": {"guest": "Wine"}}), bootstrap: json!({}), ..Workers::new(name, &cp).await };
        workers.apply(&cp).await;
        let pods = Mutex::new(HostProcesses::new(NAMESPACE, &programs.node));
        let random = sync::Mutex::new(StdRng::seed_from_u64(seed()));
        let mut cluster = Self { besides, programs, pods, random, workers, capw, cp, joins: AuditMark::default() };
        prepare(&cluster.cp, &cluster.name()).await;
        let auto = json!({"spec": {"components": {"mode": "Auto"}}});
        cluster.cp.patch(Kind::WINDOWS_CLUSTER, &cluster.name(), &auto).await.expect("the network can be brought");
        cluster.cp.wait_condition(Kind::WINDOWS_CLUSTER, &cluster.name(), "ComponentsReady", "True", LIMIT).await;
        cluster.joins = cluster.cp.audit_mark();
        cluster.workers.replicas = replicas;
        cluster.cp.apply_objects(&[cluster.workers.machine_deployment()]).await;
        let (cp, workers) = (&cluster.cp, &cluster.workers);
        cluster.until("the real Windows nodes are Ready", async || workers.settled(cp, cp).await.map(drop)).await;
        cluster
    }

    /// The name of the WindowsCluster.
    pub fn name(&self) -> String {
        self.workers.name(&self.workers.cluster)
    }

    pub async fn windows_nodes(&self) -> Vec<Value> {
        let nodes = self.cp.list(Kind::NODE, None).await;
        nodes.into_iter().filter(|node| text(node, "/metadata/name").starts_with("win-")).collect()
    }

    pub fn guest_of(&self, node: &Value) -> Option<WineGuest> {
        guest_of(&self.capw, node)
    }

    /// Stops HNS for the first calls on one node in three.
    fn trouble(&self, node: &str, guest: &WineGuest) {
        let mut random = self.random.lock().expect("no test has failed");
        if random.random_ratio(1, 3) {
            let calls: u32 = random.random_range(1..=8);
            guest.write(FAULT, format!("down {calls}").as_bytes());
            step(format!("HNS of {node} is stopped for its first {calls} calls"));
        }
    }

    /// Waits and meanwhile runs the pods: this replaces the kubelets and containerd, because Wine has no containers.
    pub async fn until(&self, what: &str, look: impl AsyncFn() -> Result<(), String>) {
        wait_for(what, LIMIT, || async {
            let nodes = self.cp.list(Kind::NODE, None).await;
            let guest = |name: &str| {
                let node = nodes.iter().find(|node| text(node, "/metadata/name") == name)?;
                let guest = self.guest_of(node)?;
                if self.programs.put_into(&guest, address(node)?) {
                    self.trouble(name, &guest);
                }
                (self.besides)(&guest, node)?;
                Some(guest)
            };
            self.pods.lock().await.run(&self.cp, guest).await;
            let logs = self.pods.lock().await.logs("");
            look().await.map_err(|why| format!("{why}; {logs}"))
        })
        .await;
    }
}
