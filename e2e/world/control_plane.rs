//! One Kubernetes control plane on this machine. It must share only the programs with another one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use capw_patience::{step, wait_for};
use kube::Client;
use serde_json::{Value, json};
use tokio::process::Command;

use super::capw::Capw;
use super::client::{Kind, client_of, output, text};
use super::kept::Kept;
use super::ports::free_port;
use super::process::Process;
use super::scratch::Scratch;
use super::servers::{AUDIT_POLICY, Servers};
use super::tools::Tools;
use super::{core, pki};

/// The parts of a control plane. The default: Cluster API core and CAPW's definitions, no scheduler.
#[derive(Debug, Clone)]
pub struct Options {
    /// The prefix of its directory's name; shown in messages.
    pub name: String,
    /// The address of the API server. VMs do not reach the loopback address.
    pub address: IpAddr,
    /// Whether to run Cluster API core.
    pub core: bool,
    /// Whether to install the definitions and rights of `config/default`.
    pub capw: bool,
    /// Whether to run kube-scheduler.
    pub scheduler: bool,
    /// The requests that kube-apiserver logs, with or without their bodies.
    pub audit_policy: &'static str,
    /// More flags for kube-controller-manager.
    pub controller_manager: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "e2e".to_owned(),
            address: Ipv4Addr::LOCALHOST.into(),
            core: true,
            capw: true,
            scheduler: false,
            audit_policy: AUDIT_POLICY,
            controller_manager: Vec::new(),
        }
    }
}

impl Options {
    /// Options for Kubernetes alone: a workload cluster, or a cluster where clusterctl installs Cluster API.
    pub fn plain() -> Self {
        Self { core: false, capw: false, ..Self::default() }
    }

    /// Options with Cluster API core, without CAPW's definitions.
    pub fn cluster_api() -> Self {
        Self { capw: false, ..Self::default() }
    }

    /// Options with CAPW's definitions, without Cluster API core.
    pub fn standalone() -> Self {
        Self { core: false, ..Self::default() }
    }

    /// The options with another name.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
}

/// The ConfigMap by which `kubeadm join` finds a cluster.
const CLUSTER_INFO: &str = "kube-public/cluster-info";
/// The ConfigMap with kubeadm's settings of the cluster.
const KUBEADM_CONFIG: &str = "kube-system/kubeadm-config";

/// A running control plane. When dropped, its processes end and its files are removed.
pub struct ControlPlane {
    // Fields are dropped from first to last: clients of the API server end before it, the files are removed last.
    core: Mutex<Option<Arc<Process>>>,
    servers: Option<Servers>,
    client: Client,
    kubeconfig: PathBuf,
    has_capw: bool,
    beside: AtomicUsize,
    scratch: Arc<Scratch>,
}

/// The state of a process that may not be ready yet.
pub(super) enum Ready {
    /// The process runs.
    Starting,
    /// The process ended because another program took its port.
    PortTaken,
}

impl Ready {
    /// Panics with the end of the log if the process ended for another reason than its port.
    pub(super) fn of(process: &Process) -> Self {
        if process.is_running() {
            Self::Starting
        } else if process.log().contains("address already in use") {
            Self::PortTaken
        } else {
            panic!("{} ended at its start; its log ends:\n{}", process.name(), process.log_end());
        }
    }
}

impl ControlPlane {
    /// Starts a control plane and waits until it is usable: the API server answers, bootstrap tokens work, core's webhooks answer. It is a copy
    /// of one that a test of this run has kept, if there is one.
    pub async fn start(options: Options) -> Self {
        let start = Instant::now();
        let kept = Kept::take(&options).await;
        for _ in 0..3 {
            if let Some(cp) = Self::begin(&options, kept.as_ref()).await {
                let took = start.elapsed().as_secs_f32();
                step(format!("control plane {} is up after {took:.1} s, below {}", options.name, cp.directory().display()));
                return cp;
            }
            step("a stranger took a port; starting over");
        }
        panic!("a control plane's ports were taken by others three times");
    }

    /// Starts from the kept control plane, or keeps the new one. `None` if a port was taken.
    async fn begin(options: &Options, kept: Option<&Kept>) -> Option<Self> {
        let is_copy = kept.is_some_and(Kept::is_there);
        let cp = Self::attempt(options, kept.filter(|_| is_copy)).await?;
        if options.core {
            let webhooks = free_port();
            if is_copy {
                core::direct_webhooks(&cp, webhooks).await;
            } else {
                core::install(&cp, webhooks).await;
            }
            *cp.core.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(core::run(&cp, webhooks).await?));
        }
        if options.capw && !is_copy {
            Capw::install(&cp).await;
        }
        if let Some(kept) = kept.filter(|_| !is_copy) {
            cp.servers().etcd.freeze();
            kept.keep(cp.directory());
            cp.servers().etcd.thaw();
        }
        Some(cp)
    }

    /// An existing cluster, by its kubeconfig file and current context. This module does not start, stop or audit any part of it;
    /// the story's own files and processes (logs, kubeconfigs, `capw`) are kept apart and removed as always.
    pub async fn existing(kubeconfig: &Path) -> Self {
        let scratch = Arc::new(Scratch::new("existing"));
        let mut view = Command::new(&Tools::ensure().kubectl);
        // Flattened, because certificates may be paths relative to the file.
        view.args(["config", "view", "--raw", "--minify", "--flatten"]).env("KUBECONFIG", kubeconfig);
        let text = output(view, None).await.unwrap_or_else(|said| panic!("{}: {said}", kubeconfig.display()));
        let client = client_of(&text).await;
        let kubeconfig = scratch.write("kube/existing.conf", text);
        Self { core: Mutex::new(None), servers: None, client, kubeconfig, has_capw: false, beside: AtomicUsize::new(0), scratch }
    }

    /// Starts the servers. `None` if a port was taken between choosing and using it.
    async fn attempt(options: &Options, kept: Option<&Kept>) -> Option<Self> {
        let scratch = Arc::new(Scratch::new(&options.name));
        kept.inspect(|kept| kept.restore(scratch.path()));
        let endpoint = SocketAddr::new(options.address, free_port());
        let servers = Servers::new(scratch.path(), endpoint.port(), options);
        servers.etcd.start();
        let kubeconfig = pki::configure(&scratch, endpoint);
        let moved = kept.map(|_| pki::Move::kubeconfigs(&scratch, endpoint.port()));
        if moved.is_none() {
            pki::make(&scratch, endpoint).await;
        }
        scratch.write("audit-policy.yaml", options.audit_policy);
        servers.api_server.start();
        let client = client_of(&std::fs::read_to_string(&kubeconfig).expect("kubeadm wrote it")).await;
        let up = wait_for("kube-apiserver answers /readyz", Duration::from_secs(60), || async {
            match (Ready::of(&servers.etcd), Ready::of(&servers.api_server)) {
                (Ready::Starting, Ready::Starting) => {
                    let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
                    client.request_text(request).await.map(|_| true)
                }
                _ => Ok(false),
            }
        })
        .await;
        if !up {
            return None;
        }
        let (core, servers, beside) = (Mutex::new(None), Some(servers), AtomicUsize::new(0));
        let cp = Self { core, servers, client, kubeconfig, has_capw: options.capw, beside, scratch };
        match moved {
            Some(moved) => cp.complete(&moved).await,
            None => pki::upload(&cp.scratch, &cp.kubeconfig).await,
        }
        cp.controller_manager().start();
        cp.servers().scheduler.iter().for_each(Process::start);
        let signed = wait_for("cluster-info is signed, so that bootstrap tokens work", Duration::from_secs(30), || async {
            match Ready::of(cp.controller_manager()) {
                Ready::PortTaken => Ok(false),
                Ready::Starting if cp.is_signed().await => Ok(true),
                Ready::Starting => Err("no signature"),
            }
        })
        .await;
        signed.then_some(cp)
    }

    async fn is_signed(&self) -> bool {
        !self.signatures().await.is_empty()
    }

    /// Updates the port in the ConfigMaps that `kubeadm join` reads in a copy, and removes the signatures of cluster-info, so that a new one shows
    /// that the controller manager works.
    async fn complete(&self, moved: &pki::Move) {
        let mut info: serde_json::Map<String, Value> = self.signatures().await.into_iter().map(|key| (key, Value::Null)).collect();
        info.insert("kubeconfig".to_owned(), json!(self.moved(CLUSTER_INFO, "/data/kubeconfig", moved).await));
        let settings = json!({"ClusterConfiguration": self.moved(KUBEADM_CONFIG, "/data/ClusterConfiguration", moved).await});
        for (name, data) in [(CLUSTER_INFO, json!(info)), (KUBEADM_CONFIG, settings)] {
            self.patch(Kind::CONFIG_MAP, name, &json!({ "data": data })).await.unwrap_or_else(|e| panic!("ConfigMap {name}: {e}"));
        }
    }

    async fn moved(&self, name: &str, field: &str, moved: &pki::Move) -> String {
        let object = self.get(Kind::CONFIG_MAP, name).await.unwrap_or_else(|| panic!("kubeadm made ConfigMap {name}"));
        moved.text(text(&object, field))
    }

    /// The keys of cluster-info with signatures.
    async fn signatures(&self) -> Vec<String> {
        let info = self.get(Kind::CONFIG_MAP, CLUSTER_INFO).await.unwrap_or_default();
        let keys = info["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
        keys.filter(|key| key.starts_with("jws-kubeconfig-")).collect()
    }

    /// Installs and starts Cluster API core, also after `clusterctl init` has installed the form that needs pods.
    pub async fn start_core(&self) {
        let process = core::start(self).await;
        *self.core.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(process));
    }

    /// Cluster API core. Panics if it was never started.
    pub fn core(&self) -> Arc<Process> {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.clone().expect("Cluster API core was started: Options::core or start_core")
    }

    /// kube-apiserver, for stopping, freezing and starting it again on its port.
    pub fn api_server(&self) -> &Process {
        &self.servers().api_server
    }

    /// The port of the API server.
    pub fn port(&self) -> u16 {
        self.servers().port
    }

    /// kube-controller-manager.
    pub fn controller_manager(&self) -> &Process {
        &self.servers().controller_manager
    }

    fn servers(&self) -> &Servers {
        self.servers.as_ref().expect("a control plane that was started here, not an existing one")
    }

    /// Whether it was started with CAPW's definitions.
    pub(super) fn has_capw(&self) -> bool {
        self.has_capw
    }

    /// A client with all rights. It lives as long as the runtime of [`super::run`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The directory with all files of this control plane; removed when it is dropped.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs kubeadm against this control plane and returns its output.
    pub async fn kubeadm(&self, args: &[&str]) -> String {
        let kubeconfig = self.kubeconfig.to_str().expect("a path in UTF-8");
        pki::kubeadm(&self.scratch, &[args, &["--kubeconfig", kubeconfig]].concat()).await
    }

    pub(super) fn scratch(&self) -> &Arc<Scratch> {
        &self.scratch
    }

    /// A name for the next process of a kind beside this control plane: `capw`, `capw-2`, ...
    pub(super) fn next_name(&self, kind: &str) -> String {
        match self.beside.fetch_add(1, Ordering::Relaxed) {
            0 => kind.to_owned(),
            n => format!("{kind}-{}", n + 1),
        }
    }
}
