//! One Kubernetes control plane on 127.0.0.1. It must not share anything with another one but the programs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;

use super::client::client_of;
use super::ports::free_port;
use super::process::Process;
use super::scratch::Scratch;
use super::tools::Tools;
use super::wait::{step, wait_for};
use super::{core, pki};

/// What a control plane consists of. The default: Cluster API core, no scheduler.
#[derive(Debug, Clone)]
pub struct Options {
    /// Starts of its directory's name; shown in messages.
    pub name: String,
    /// Runs Cluster API core.
    pub core: bool,
    /// Runs kube-scheduler.
    pub scheduler: bool,
    /// More flags for kube-apiserver; a flag given here wins over ours.
    pub api_server: Vec<String>,
    /// More flags for kube-controller-manager.
    pub controller_manager: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { name: "e2e".to_owned(), core: true, scheduler: false, api_server: Vec::new(), controller_manager: Vec::new() }
    }
}

impl Options {
    /// Kubernetes alone: a workload cluster, or one where clusterctl installs Cluster API.
    pub fn plain() -> Self {
        Self { core: false, ..Self::default() }
    }

    /// With another name.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
}

/// A running control plane. Dropped, its processes end and its files go.
pub struct ControlPlane {
    // Fields are dropped from first to last: whoever uses the API server ends before it, the files go last.
    core: Mutex<Option<Arc<Process>>>,
    scheduler: Option<Process>,
    controller_manager: Process,
    api_server: Process,
    etcd: Process,
    client: Client,
    kubeconfig: PathBuf,
    port: u16,
    beside: AtomicUsize,
    scratch: Arc<Scratch>,
}

/// How far a process has come that is not known to be ready.
pub(super) enum Ready {
    /// It runs.
    Starting,
    /// It ended because a stranger took its port.
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
    /// Starts one and waits until it can be used: the API server answers, bootstrap tokens work, core's webhooks answer.
    pub async fn start(options: Options) -> Self {
        let start = Instant::now();
        let cp = Self::without_core(&options).await;
        let kubernetes = start.elapsed();
        if options.core {
            cp.start_core().await;
        }
        step(format!(
            "control plane {} is up on port {} after {:.1} s (Kubernetes {:.1} s)",
            options.name,
            cp.port,
            start.elapsed().as_secs_f32(),
            kubernetes.as_secs_f32()
        ));
        cp
    }

    async fn without_core(options: &Options) -> Self {
        for _ in 0..3 {
            if let Some(cp) = Self::attempt(options).await {
                return cp;
            }
            step("a stranger took a port; starting over");
        }
        panic!("a control plane's ports were taken by others three times");
    }

    /// `None` if a port was taken between choosing and using it.
    async fn attempt(options: &Options) -> Option<Self> {
        let tools = Tools::ensure();
        let scratch = Arc::new(Scratch::new(&options.name));
        let dir = scratch.path();
        let port = free_port();
        let (etcd, etcd_url) = etcd(tools, dir);
        etcd.start();
        let kubeconfig = pki::make(&scratch, port).await;
        scratch.write("audit-policy.yaml", AUDIT_POLICY);
        let api_server = api_server(tools, dir, port, &etcd_url, &options.api_server);
        api_server.start();
        let client = client_of(&std::fs::read_to_string(&kubeconfig).expect("pki::make wrote it")).await;
        let up = wait_for("kube-apiserver answers /readyz", Duration::from_secs(60), || async {
            match (Ready::of(&etcd), Ready::of(&api_server)) {
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
        let controller_manager = controller_manager(tools, dir, &options.controller_manager);
        controller_manager.start();
        let scheduler = options.scheduler.then(|| scheduler(tools, dir));
        if let Some(scheduler) = &scheduler {
            scheduler.start();
        }
        pki::upload(&scratch, &kubeconfig).await;
        let cp = Self {
            core: Mutex::new(None),
            scheduler,
            controller_manager,
            api_server,
            etcd,
            client,
            kubeconfig,
            port,
            beside: AtomicUsize::new(0),
            scratch,
        };
        let signed = wait_for("cluster-info is signed, so that bootstrap tokens work", Duration::from_secs(30), || async {
            match Ready::of(&cp.controller_manager) {
                Ready::PortTaken => Ok(false),
                Ready::Starting if cp.is_signed().await => Ok(true),
                Ready::Starting => Err("no signature"),
            }
        })
        .await;
        signed.then_some(cp)
    }

    async fn is_signed(&self) -> bool {
        let info = self.get(super::Kind::CONFIG_MAP, "kube-public/cluster-info").await;
        let data = info.as_ref().and_then(|map| map["data"].as_object());
        data.is_some_and(|data| data.keys().any(|key| key.starts_with("jws-kubeconfig-")))
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

    /// kube-apiserver, to stop it, freeze it and start it again on its port.
    pub fn api_server(&self) -> &Process {
        &self.api_server
    }

    /// kube-controller-manager.
    pub fn controller_manager(&self) -> &Process {
        &self.controller_manager
    }

    /// A client with all rights. It lives as long as the runtime of [`super::run`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with everything that belongs to this control plane; gone when it is dropped.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs kubeadm against this control plane and gives what it printed.
    pub async fn kubeadm(&self, args: &[&str]) -> String {
        let kubeconfig = self.kubeconfig.to_str().expect("a path in UTF-8");
        pki::kubeadm(&self.scratch, &[args, &["--kubeconfig", kubeconfig]].concat()).await
    }

    pub(super) fn scratch(&self) -> &Arc<Scratch> {
        &self.scratch
    }

    /// A name for one more thing of its kind beside this control plane: `capw`, `capw-2`, ...
    pub(super) fn next_name(&self, kind: &str) -> String {
        match self.beside.fetch_add(1, Ordering::Relaxed) {
            0 => kind.to_owned(),
            n => format!("{kind}-{}", n + 1),
        }
    }
}

/// One line per request when it is answered. A watch has one when it begins, another when it ends.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

fn etcd(tools: &Tools, dir: &Path) -> (Process, String) {
    let (url, peer) = (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
    let process = Process::new("etcd", &tools.etcd, dir).args([
        "--data-dir=etcd".to_owned(),
        // The data are worth nothing after a crash of the machine; this saves seconds.
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]);
    (process, url)
}

fn api_server(tools: &Tools, dir: &Path, port: u16, etcd: &str, more: &[String]) -> Process {
    let ours = [
        format!("--etcd-servers={etcd}"),
        format!("--secure-port={port}"),
        format!("--advertise-address={}", pki::ADVERTISED),
        format!("--service-cluster-ip-range={}", pki::SERVICE_SUBNET),
    ];
    Process::new("kube-apiserver", &tools.kube_apiserver, dir).args(ours).args(API_SERVER).args(more)
}

const API_SERVER: [&str; 22] = [
    "--bind-address=127.0.0.1",
    "--tls-cert-file=pki/apiserver.crt",
    "--tls-private-key-file=pki/apiserver.key",
    "--client-ca-file=pki/ca.crt",
    "--service-account-key-file=pki/sa.pub",
    "--service-account-signing-key-file=pki/sa.key",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--kubelet-client-certificate=pki/apiserver-kubelet-client.crt",
    "--kubelet-client-key=pki/apiserver-kubelet-client.key",
    "--requestheader-client-ca-file=pki/front-proxy-ca.crt",
    "--requestheader-allowed-names=front-proxy-client",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--enable-bootstrap-token-auth",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--allow-privileged",
    "--audit-policy-file=audit-policy.yaml",
    "--audit-log-path=audit.jsonl",
    // Megabytes before a new file is begun: never, so that a mark in it stays good.
    "--audit-log-maxsize=100000",
    "--shutdown-delay-duration=0s",
];

fn controller_manager(tools: &Tools, dir: &Path, more: &[String]) -> Process {
    let ours = [format!("--secure-port={}", free_port()), format!("--cluster-cidr={}", pki::POD_SUBNET)];
    Process::new("kube-controller-manager", &tools.kube_controller_manager, dir).args(ours).args(CONTROLLER_MANAGER).args(more)
}

const CONTROLLER_MANAGER: [&str; 12] = [
    "--kubeconfig=kube/controller-manager.conf",
    "--bind-address=127.0.0.1",
    "--leader-elect=false",
    "--use-service-account-credentials",
    "--service-account-private-key-file=pki/sa.key",
    "--root-ca-file=pki/ca.crt",
    "--cluster-signing-cert-file=pki/ca.crt",
    "--cluster-signing-key-file=pki/ca.key",
    "--controllers=*,bootstrapsigner,tokencleaner",
    "--allocate-node-cidrs",
    // Its client is held to 20 requests a second otherwise: 6 s until tokens are signed instead of 0.8 s.
    "--kube-api-qps=200",
    "--kube-api-burst=400",
];

fn scheduler(tools: &Tools, dir: &Path) -> Process {
    Process::new("kube-scheduler", &tools.kube_scheduler, dir).args([
        "--kubeconfig=kube/scheduler.conf".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", free_port()),
        "--leader-elect=false".to_owned(),
    ])
}
