//! The program under test: its definitions and rights are installed as a user would, and `capw run` is a process with the rights of
//! its own ServiceAccount. This module must not give it any right or fact that a cluster would not.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use capw_patience::{stretch, wait_for};
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::client::output;
use super::control_plane::{ControlPlane, Ready};
use super::faulty_way::FaultyWay;
use super::manifests;
use super::ports::free_port;
use super::process::Process;
use super::scratch::Scratch;
use super::tools::{Tools, checkout};

/// The namespace of config/default.
const NAMESPACE: &str = "capw-system";
const SERVICE_ACCOUNT: &str = "capw-controller-manager";
/// CAPW's user in the audit log.
const USER: &str = "system:serviceaccount:capw-system:capw-controller-manager";

/// The variables in CAPW's Deployment about memory, by name: what it takes depends on them.
fn memory_settings() -> Vec<(String, String)> {
    let deployment = manifests::deployment();
    let text = |variable: &Value, field: &str| Some(variable[field].as_str()?.to_owned());
    let all = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().expect("variables").iter();
    let all = all.filter_map(|variable| Some((text(variable, "name")?, text(variable, "value")?)));
    let settings: Vec<(String, String)> = all.filter(|(name, _)| name.starts_with("MALLOC_")).collect();
    assert!(!settings.is_empty(), "config/manager/deployment.yaml does not set how much freed memory is kept");
    settings
}

/// A `capw run` process. It is killed when dropped.
pub struct Capw {
    process: Process,
    health: SocketAddr,
    diagnostics: SocketAddr,
    state: PathBuf,
    // Kept because the log is in this directory.
    _scratch: Arc<Scratch>,
}

impl Capw {
    /// CAPW's user in the audit log.
    pub const USER: &str = USER;

    /// Installs definitions and rights, starts CAPW and waits until it is ready. `args` are more flags for
    /// `capw run`; a flag in `args` replaces ours of the same name. The state of simulated hypervisors is deleted with the
    /// control plane, unless `--simulated-state=DIR` is given.
    pub async fn start(cp: &ControlPlane, args: &[&str]) -> Self {
        if !cp.has_capw() {
            Self::install(cp).await;
        }
        for _ in 0..3 {
            let capw = Self::prepare(cp, args).await;
            if capw.is_ready_on_its_port().await {
                return capw;
            }
        }
        panic!("capw found its ports taken three times");
    }

    /// Installs `config/default`, except the objects that run in pods: nothing here runs pods.
    pub(super) async fn install(cp: &ControlPlane) {
        manifests::apply_all(&cp.client(), INSTALLED.get_or_init(installed).await.clone()).await;
    }

    /// Prepares CAPW without starting it: a second process beside the first, or one that is started later.
    pub async fn prepare(cp: &ControlPlane, args: &[&str]) -> Self {
        Self::prepare_in(cp, NAMESPACE, args).await
    }

    /// As [`Capw::prepare`], with the ServiceAccount of another namespace: one of the three components that clusterctl installs.
    pub async fn prepare_in(cp: &ControlPlane, namespace: &str, args: &[&str]) -> Self {
        let name = cp.next_name("capw");
        let dir = cp.directory();
        let (health, diagnostics) = (free_port(), free_port());
        let given = |flag: &str| {
            let mut args = args.iter();
            args.find(|arg| **arg == flag || arg.starts_with(&format!("{flag}="))).map(|arg| match arg.split_once('=') {
                Some((_, value)) => value.to_owned(),
                None => panic!("{arg}: write it as {flag}=VALUE"),
            })
        };
        let address = |flag: &str, port: u16| {
            let text = given(flag).unwrap_or_else(|| format!("127.0.0.1:{port}"));
            text.parse::<SocketAddr>().unwrap_or_else(|e| panic!("{flag}={text}: {e}"))
        };
        let state = given("--simulated-state").map_or_else(|| dir.join("simulated"), PathBuf::from);
        let ours = [
            ("--simulated-state", state.display().to_string()),
            ("--health-address", format!("127.0.0.1:{health}")),
            ("--diagnostics-address", format!("127.0.0.1:{diagnostics}")),
            ("--leader-elect", "false".to_owned()),
            ("--insecure-diagnostics", "true".to_owned()),
            // The stories keep their objects in this namespace.
            ("--own-cluster-namespaces", "default".to_owned()),
        ];
        let flags = ours.iter().filter(|(flag, _)| given(flag).is_none()).map(|(flag, value)| format!("{flag}={value}"));
        let kubeconfig = cp.kubeconfig_for(namespace, SERVICE_ACCOUNT).await;
        let process = Process::new(&name, &program(), dir).args(["run"]).args(flags).args(args);
        let process = process.env("KUBECONFIG", kubeconfig).env("POD_NAMESPACE", namespace);
        let process = memory_settings().into_iter().fold(process, |process, (name, value)| process.env(name, value));
        Self {
            process,
            health: address("--health-address", health),
            diagnostics: address("--diagnostics-address", diagnostics),
            state,
            _scratch: Arc::clone(cp.scratch()),
        }
    }

    /// Uses the program of another release. Call this before the start.
    pub fn program(self, program: &Path) -> Self {
        Self { process: self.process.program(program), ..self }
    }

    /// Uses a faulty way to the management cluster. Call this before the start.
    pub async fn by(self, cp: &ControlPlane, way: &FaultyWay) -> Self {
        let direct = cp.kubeconfig_for(NAMESPACE, SERVICE_ACCOUNT).await;
        let direct = std::fs::read_to_string(&direct).unwrap_or_else(|e| panic!("{}: {e}", direct.display()));
        let kubeconfig = cp.scratch().write(&format!("kube/{}.faulty.conf", self.process.name()), way.kubeconfig(&direct));
        Self { process: self.process.env("KUBECONFIG", kubeconfig), ..self }
    }

    /// A process for the guests of the simulated VMs, for a CAPW with `--simulated-guests=false`. Not started yet.
    pub fn guests(&self, cp: &ControlPlane) -> Process {
        let state = format!("--simulated-state={}", self.state.display());
        Process::new(&cp.next_name("guests"), &program(), cp.directory()).args(["guests".to_owned(), state])
    }

    /// Starts CAPW, if it does not run, and waits for readiness.
    pub async fn start_again(&self) {
        assert!(self.is_ready_on_its_port().await, "capw's port was taken by another program");
    }

    /// Restarts CAPW whenever it has lost its lease, as its Deployment does: on an overloaded machine it may not renew the lease for ten seconds.
    pub async fn keep_leading(&self) -> Infallible {
        loop {
            if !self.process.is_running() {
                let end = self.process.log_end();
                assert!(end.contains("leadership lost"), "capw ended by itself; its log ends:\n{end}");
                self.start_again().await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Starts CAPW; `false` if another program took its port.
    async fn is_ready_on_its_port(&self) -> bool {
        self.process.start();
        wait_for("capw answers /readyz", Duration::from_secs(120), || async {
            match Ready::of(&self.process) {
                Ready::Starting => match http_get(self.health, "/readyz") {
                    Ok((200, _)) => Ok(true),
                    Ok((code, body)) => Err(format!("{code}: {body}")),
                    Err(error) => Err(error.to_string()),
                },
                Ready::PortTaken => Ok(false),
            }
        })
        .await
    }

    /// Runs `capw diagnose` with all rights; returns exit code, standard output, standard error.
    pub async fn diagnose(&self, cp: &ControlPlane, arguments: &[&str]) -> (i32, String, String) {
        self.ask(cp, &[&["diagnose"], arguments].concat()).await
    }

    /// Runs `capw` with all rights, as a person does; returns exit code, standard output, standard error.
    pub async fn ask(&self, cp: &ControlPlane, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(program());
        command.args(arguments).env("KUBECONFIG", cp.kubeconfig()).env_remove("KUBERNETES_SERVICE_HOST").kill_on_drop(true);
        let output = command.output().await.unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// Sends SIGKILL: CAPW gets no chance to finish anything.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Sends SIGTERM, and waits for the end, at most 30 s.
    pub fn stop(&self) -> Option<ExitStatus> {
        self.process.stop(Duration::from_secs(30))
    }

    /// Sends SIGKILL and starts CAPW again.
    pub async fn restart(&self) {
        self.kill();
        self.start_again().await;
    }

    /// CAPW's metrics, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        match http_get(self.diagnostics, "/metrics") {
            Ok((200, body)) => body,
            other => panic!("http://{}/metrics: {other:?}", self.diagnostics),
        }
    }

    /// The sum of a metric over the series whose line holds all of `labels`; 0 if there is none.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let metrics = self.metrics();
        let series = metrics.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
        });
        series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// The response of the health server: code and body. `path` is `/livez` or `/readyz`.
    pub fn health(&self, path: &str) -> std::io::Result<(u16, String)> {
        http_get(self.health, path)
    }

    /// CAPW's whole log so far, from all its starts.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The directory with the state of simulated hypervisors.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The address of the metrics.
    pub fn diagnostics(&self) -> SocketAddr {
        self.diagnostics
    }

    /// The process itself, e.g. for whether it runs and its memory.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Rendered and read once for all stories of this program.
static INSTALLED: OnceCell<Vec<Value>> = OnceCell::const_new();

async fn installed() -> Vec<Value> {
    let mut objects = manifests::documents(&kustomize("config/default").await);
    let needs_pods = |object: &Value| matches!(object["kind"].as_str(), Some("Deployment" | "Service" | "PodDisruptionBudget"));
    objects.retain(|object| !needs_pods(object));
    let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
    assert!(objects.iter().any(is_definition), "config/default brings no CustomResourceDefinition");
    objects
}

/// Renders a kustomization of the checkout.
pub(super) async fn kustomize(directory: &str) -> String {
    let path = checkout().join(directory);
    assert!(path.is_dir(), "{} is missing", path.display());
    let mut command = Command::new(&Tools::ensure().kubectl);
    command.arg("kustomize").arg(&path);
    output(command, None).await.unwrap_or_else(|said| panic!("kubectl kustomize {directory}: {said}"))
}

/// Files of a directory with an extension, sorted.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.sort();
    paths
}

/// The program built with this one: tests and benchmarks get its path from cargo, an example finds it one directory above its own.
pub fn program() -> PathBuf {
    let path = match option_env!("CARGO_BIN_EXE_capw") {
        Some(path) => PathBuf::from(path),
        None => {
            let own = std::env::current_exe().expect("the path of this program");
            own.ancestors().nth(2).expect("an example lies in target/PROFILE/examples").join("capw")
        }
    };
    assert!(path.exists(), "{} is missing: run `cargo build` first", path.display());
    path
}

/// A GET over HTTP/1.0, as a probe does, without a client library. Returns code and body.
pub fn http_get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let limit = Duration::from_secs(5).mul_f64(stretch());
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let code = answer.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    code.zip(body).ok_or_else(|| std::io::Error::other(format!("no HTTP answer: {answer:?}")))
}
