//! The cluster that the demo runs in: a new one, or one of the user. The demo must leave the user's cluster as it was.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a demo ends with the place of what went wrong")]

use std::fmt;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use capw_libvirtd::Daemon;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::late::{Guests, Programs};
use crate::progress::say;
use crate::tour;
use crate::world::{Capw, ControlPlane, Kind, Options, Tools, hardware, program, text};

const DEPLOYMENT: Kind = Kind::new("apps/v1", "deployments");
/// The namespace of all objects in a cluster of the user.
const GUEST_NAMESPACE: &str = "capw-demo";
/// The Secret with the login of a host.
const LOGIN: &str = "host-login";
/// The limit for the machines to be deleted.
const CLEAR: Duration = Duration::from_secs(180);

/// The hypervisor that creates the VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Hypervisor {
    /// CAPW's own.
    #[default]
    Simulated,
    /// A libvirt daemon of the demo.
    Libvirt,
}

/// How an image starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Firmware {
    /// As images made by the recipes of this project do.
    #[default]
    Uefi,
    /// As older images do.
    Bios,
}

/// What runs guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Acceleration {
    /// The processor itself.
    Kvm,
    /// QEMU, which translates: many times slower.
    Tcg,
}

impl Acceleration {
    const ALL: [Self; 2] = [Self::Kvm, Self::Tcg];
}

/// Formats as the field of a WindowsHypervisor.
impl fmt::Display for Acceleration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Kvm { "KVM" } else { "TCG" })
    }
}

/// A libvirt host of the user.
#[derive(Debug, Args)]
pub struct Host {
    /// Make the VM on this libvirt host of yours instead, e.g. qemu+ssh://capw@kvm1/system. The image is then a volume of its pool. The demo removes the
    /// VM at its end, also after Ctrl-C; the host must reach this machine.
    #[arg(long = "connect", value_name = "ADDRESS", required = false, requires = "image")]
    pub address: String,
    /// The storage pool of the host.
    #[arg(long, default_value = "default", requires = "address")]
    pub pool: String,
    /// The network of the host, or bridge:NAME; QEMU's own if it is left out for an address that ends in session.
    #[arg(long, requires = "address")]
    pub network: Option<String>,
    /// A key of the Secret that CAPW logs in with, and the file that holds it: ssh-privatekey and known_hosts, or ca.crt, tls.crt and tls.key.
    #[arg(long, value_name = "KEY=FILE", requires = "address", value_parser = login)]
    pub login: Vec<(String, PathBuf)>,
    /// What runs guests there; KVM if libvirt says that it can, and otherwise TCG, if it is left out.
    #[arg(long, value_enum, requires = "address")]
    pub acceleration: Option<Acceleration>,
}

fn login(argument: &str) -> Result<(String, PathBuf), String> {
    let (key, file) = argument.split_once('=').ok_or_else(|| format!("{argument:?} is not KEY=FILE"))?;
    let file = PathBuf::from(file);
    if file.is_file() { Ok((key.to_owned(), file)) } else { Err(format!("{}: there is no such file", file.display())) }
}

/// An image of the user.
#[derive(Debug)]
pub struct OwnImage {
    /// A file (qcow2 or raw), or the name of a volume of the host.
    pub image: String,
    /// How the image starts.
    pub firmware: Firmware,
    /// The host that has the image, if it is not this machine.
    pub host: Option<Host>,
}

impl Host {
    /// `spec` of a WindowsHypervisor for this host and the image.
    fn hypervisor(&self, image: &str) -> Value {
        let mut spec = json!({
            "libvirt": {"address": self.address, "pool": self.pool},
            "images": [{"name": hardware::IMAGE, "is": image}],
        });
        if let Some(network) = &self.network {
            spec["libvirt"]["network"] = json!(network);
        }
        if !self.login.is_empty() {
            spec["credentialsRef"] = json!({"name": LOGIN});
        }
        spec
    }
}

/// A cluster and the demo's objects in it.
pub struct Stage {
    /// The cluster.
    pub cp: ControlPlane,
    /// The program, once it is started.
    pub capw: OnceCell<Capw>,
    /// The daemon that runs real VMs, if there are any.
    pub daemon: Option<Daemon>,
    /// The user's image; `None`: the Linux that stands for Windows.
    pub own: Option<OwnImage>,
    /// The acceleration of the guests, once the hypervisor has reported it.
    pub acceleration: OnceCell<Acceleration>,
    /// The namespace of the README's objects.
    pub namespace: &'static str,
    /// Whether the cluster existed before.
    pub existing: bool,
    /// Whether our definitions existed before, too.
    pub installed: bool,
}

/// Plays the demo until its end or Ctrl-C, and cleans up. The error names what the cluster lacks.
pub async fn play(kubeconfig: Option<&Path>, hypervisor: Hypervisor, own: Option<OwnImage>, once: bool) -> Result<(), String> {
    let stage = tokio::select! {
        stage = Stage::open(kubeconfig, hypervisor, own) => stage?,
        _ = tokio::signal::ctrl_c() => return Ok(()),
    };
    let result = tokio::select! {
        // Ctrl-C ends kubectl too, whose failure must not count as the tour's result.
        biased;
        _ = tokio::signal::ctrl_c() => Ok(()),
        result = tour::run(&stage, once) => result,
    };
    say("stopping");
    tokio::select! {
        () = stage.clear() => {}
        _ = tokio::signal::ctrl_c() => say("not everything is cleared up"),
    }
    drop(stage);
    result
}

impl Stage {
    async fn open(kubeconfig: Option<&Path>, hypervisor: Hypervisor, own: Option<OwnImage>) -> Result<Self, String> {
        if own.is_some() && hypervisor == Hypervisor::Simulated {
            return Err("IMAGE starts on real VMs only: add HYPERVISOR=libvirt".to_owned());
        }
        let Some(kubeconfig) = kubeconfig else {
            let tools = Tools::ensure();
            say(format!("starting Kubernetes {} and Cluster API {} on this machine", tools.kubernetes_version, tools.cluster_api_version));
            let mut options = Options::cluster_api().named("demo");
            if own.is_some() {
                options.address = address().ok_or("this machine has no address but the loopback one, which VMs do not reach")?;
            }
            let cp = ControlPlane::start(options).await;
            let daemon = match hypervisor {
                Hypervisor::Simulated => None,
                Hypervisor::Libvirt if let Some(OwnImage { image, host, .. }) = &own => match host {
                    Some(_) => None,
                    None => Some(hardware::daemon_with(Path::new(image))?),
                },
                Hypervisor::Libvirt => {
                    say("starting a libvirt daemon with an image whose guests carry out a node's plan in a model of Windows");
                    let daemon = hardware::daemon("demo", &cp);
                    Some(daemon.ok_or("libvirt and QEMU are missing: the line above says which packages to install")?)
                }
            };
            let (capw, acceleration) = (OnceCell::new(), OnceCell::new());
            return Ok(Self { cp, capw, daemon, own, acceleration, namespace: "default", existing: false, installed: false });
        };
        if hypervisor == Hypervisor::Libvirt {
            return Err("HYPERVISOR=libvirt makes VMs that reach the demo's own cluster only: leave KUBECONFIG out".to_owned());
        }
        if !kubeconfig.exists() {
            return Err(format!("{}: there is no such file; KUBECONFIG must name one", kubeconfig.display()));
        }
        let cp = ControlPlane::existing(kubeconfig).await;
        say(format!("using the cluster at {}", cp.server()));
        let installed = look_at(&cp).await?;
        let (capw, acceleration) = (OnceCell::new(), OnceCell::new());
        Ok(Self { cp, capw, daemon: None, own: None, acceleration, namespace: GUEST_NAMESPACE, existing: true, installed })
    }

    /// `spec` of the WindowsHypervisor, unless the sample's is used.
    pub fn hypervisor(&self, acceleration: Acceleration) -> Option<Value> {
        let mut spec = match (&self.own, &self.daemon) {
            (Some(OwnImage { image, host: Some(host), .. }), _) => host.hypervisor(image),
            (_, Some(daemon)) => hardware::hypervisor(daemon),
            (_, None) => return None,
        };
        spec["libvirt"]["acceleration"] = json!(acceleration.to_string());
        Some(spec)
    }

    /// The accelerations to try for real VMs, best first.
    pub fn accelerations(&self) -> &[Acceleration] {
        match self.host().map(|host| &host.acceleration) {
            Some(Some(chosen)) => std::slice::from_ref(chosen),
            None if self.daemon.is_none() => &[],
            _ => &Acceleration::ALL,
        }
    }

    /// The kind of the guests.
    pub fn guests(&self) -> Guests {
        match self.acceleration.get() {
            _ if self.own.is_none() => Guests::Small,
            Some(Acceleration::Kvm) => Guests::Windows,
            _ => Guests::Translated,
        }
    }

    /// The commands with which a person diagnoses this stage.
    pub fn programs(&self) -> Programs {
        let address = |host: &Host| (host.address.clone(), host.pool.clone());
        let libvirt = self.host().map(address).or_else(|| Some((self.daemon.as_ref()?.address(), hardware::POOL.to_owned())));
        Programs {
            kubectl: Tools::ensure().kubectl.display().to_string(),
            capw: program().display().to_string(),
            flags: format!("--kubeconfig {} --namespace {}", self.cp.kubeconfig().display(), self.namespace),
            virsh: libvirt.map(|(address, pool)| (format!("virsh --connect '{address}'"), pool)),
        }
    }

    fn host(&self) -> Option<&Host> {
        self.own.as_ref()?.host.as_ref()
    }

    /// Creates the Secret with CAPW's login for the user's host.
    pub async fn give_login(&self) {
        let Some(host) = self.host().filter(|host| !host.login.is_empty()) else { return };
        let files: Vec<String> = host.login.iter().map(|(key, file)| format!("--from-file={key}={}", file.display())).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.kubectl(&[&["create", "secret", "generic", LOGIN], &files[..]].concat()).await;
    }

    /// The login Secret in YAML; empty if there is none.
    pub async fn login(&self) -> String {
        self.kubectl(&["get", "secret", LOGIN, "--ignore-not-found", "--output", "yaml"]).await
    }

    /// The control plane's version, which machines may have too, e.g. `v1.36.3`.
    pub async fn version(&self) -> String {
        let version: Value = serde_json::from_str(&self.cp.kubectl(&["get", "--raw", "/version"]).await).expect("/version is JSON");
        text(&version, "/gitVersion").split(['+', '-']).next().unwrap_or_default().to_owned()
    }

    /// Runs kubectl in the namespace of the README's objects.
    pub async fn kubectl(&self, args: &[&str]) -> String {
        self.cp.kubectl(&[&["--namespace", self.namespace], args].concat()).await
    }

    /// Returns `NAMESPACE/NAME`.
    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Removes the demo's objects from a cluster that stays, and its VMs from a host of the user.
    async fn clear(&self) {
        if !self.existing && self.host().is_none() {
            return;
        }
        let cluster = self.name("first");
        if self.capw.get().is_some() && self.cp.get(Kind::CLUSTER, &cluster).await.is_some() {
            say("deleting the Cluster, and with it machines, VMs and Nodes");
            self.cp.delete(Kind::CLUSTER, &cluster).await;
            self.cp.wait_gone(Kind::CLUSTER, &cluster, CLEAR).await;
        }
        if !self.existing {
            return;
        }
        say("deleting what else the demo has made in your cluster");
        self.cp.kubectl(&["delete", "namespace", self.namespace, "--ignore-not-found"]).await;
        if !self.installed {
            self.cp.kubectl(&["delete", "--ignore-not-found", "-k", "config/default"]).await;
        }
    }
}

/// The address by which this machine reaches others. No packet is sent.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|own| own.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

/// Whether CAPW's definitions exist in the user's cluster. The error states why the cluster is unusable.
async fn look_at(cp: &ControlPlane) -> Result<bool, String> {
    let core = cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, "machines.cluster.x-k8s.io").await;
    let versions = core.as_ref().and_then(|definition| definition["spec"]["versions"].as_array());
    if !versions.is_some_and(|versions| versions.iter().any(|version| version["name"] == "v1beta2" && version["served"] == true)) {
        let found = if core.is_some() { "an older Cluster API, without v1beta2" } else { "no Cluster API" };
        return Err(format!("this cluster has {found}: `clusterctl init` installs core 1.11 or newer (`clusterctl upgrade apply` renews it)"));
    }
    if cp.get(DEPLOYMENT, "capw-system/capw-controller-manager").await.is_some() {
        return Err("CAPW runs in this cluster already, and a second one would do the same work twice: apply config/samples/three-nodes.yaml \
                    as the README says, or delete Deployment capw-system/capw-controller-manager"
            .to_owned());
    }
    if cp.get(Kind::NAMESPACE, GUEST_NAMESPACE).await.is_some() {
        return Err(format!("namespace {GUEST_NAMESPACE} exists, perhaps from a demo that was killed: delete it first"));
    }
    Ok(cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, "windowsmachines.infrastructure.cluster.x-k8s.io").await.is_some())
}
