//! A simulated vCenter or Proxmox VE cluster whose VMs have simulated guests, which read their data and report as real ones do. It
//! must not judge.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::capw::Capw;
use super::client::text;
use super::control_plane::ControlPlane;
use super::guardian;
use super::process::send;
use super::tools::Tools;

/// The folder of the VMs.
const FOLDER: &str = "capw";
const SECRET: &str = "hypervisor-login";

/// The simulated product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// vCenter, by govmomi's simulator.
    Vsphere,
    /// A Proxmox VE cluster, by fakepve.
    Proxmox,
}

impl Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vsphere => "vsphere",
            Self::Proxmox => "proxmox",
        })
    }
}

impl Product {
    /// Name of the simulator's program.
    fn name(self) -> &'static str {
        match self {
            Self::Vsphere => "vcsim",
            Self::Proxmox => "fakepve",
        }
    }

    /// How long the guests' files may show a VM after its end: a vCenter's are updated by polling, every 20 ms on an idle machine; files of
    /// a Proxmox VE cluster are removed before its VM.
    pub fn lag(self) -> Duration {
        match self {
            Self::Vsphere => Duration::from_secs(5),
            Self::Proxmox => Duration::ZERO,
        }
    }
}

/// A running simulator. It ends when dropped.
pub struct Simulator {
    product: Product,
    process: Child,
    commands: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
    server: String,
    authority: String,
}

impl Simulator {
    /// Starts a simulator for the WindowsHypervisor `NAMESPACE/NAME`. Its VMs are among the simulated VMs of `capw`, which runs their guests too.
    pub fn start(product: Product, cp: &ControlPlane, capw: &Capw, hypervisor: &str) -> Self {
        let pki = cp.directory().join("pki");
        let read = |name: &str| std::fs::read_to_string(pki.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let guests = capw.state().join(hypervisor.replace('/', "."));
        let log = cp.directory().join(format!("{}.log", product.name()));
        let log = File::create(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let mut process = Command::new(Tools::own(product.name()))
            .arg("--certificate")
            .arg(pki.join("apiserver.crt"))
            .arg("--key")
            .arg(pki.join("apiserver.key"))
            .arg("--guests")
            .arg(guests)
            .env("TMPDIR", cp.directory())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", product.name()));
        guardian::guard_group(process.id());
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let server = lines.next().unwrap_or_else(|| panic!("{} does not start", product.name())).expect("UTF-8");
        let commands = Mutex::new((process.stdin.take().expect("its input"), lines));
        let simulator = Self { product, process, commands, server, authority: read("ca.crt") };
        if product == Product::Vsphere {
            simulator.ask(&json!({"do": "folder", "name": FOLDER}).to_string());
        }
        simulator
    }

    /// Executes a command: JSON for the vCenter, a Python expression for the cluster.
    pub fn ask(&self, command: &str) -> Value {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let (input, lines) = &mut *commands;
        writeln!(input, "{command}").expect("it reads");
        let line = lines.next().expect("it answers").expect("UTF-8");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer
    }

    /// Sends SIGSTOP: the simulator keeps its connections and does not answer.
    pub fn freeze(&self) {
        send(self.process.id(), Signal::STOP);
    }

    /// Sends SIGCONT, after [`Simulator::freeze`].
    pub fn thaw(&self) {
        send(self.process.id(), Signal::CONT);
    }

    /// Removes the VM of a WindowsMachine as an administrator would.
    pub fn remove(&self, machine: &str) {
        let vms = match self.product {
            Product::Vsphere => self.ask(&json!({"do": "vms", "folder": FOLDER}).to_string()),
            Product::Proxmox => self.ask("pve.machines()"),
        };
        let mut names = vms.as_array().into_iter().flatten().map(|vm| text(vm, "/name"));
        let name = names.find(|name| name.starts_with(machine)).unwrap_or_else(|| panic!("no VM of {machine} among {vms}"));
        match self.product {
            Product::Vsphere => self.ask(&json!({"do": "destroy", "folder": FOLDER, "name": name}).to_string()),
            Product::Proxmox => self.ask(&format!("pve.remove({name:?})")),
        };
    }

    /// The address `HOST:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// `spec` of the WindowsHypervisor.
    pub fn driver(&self) -> Value {
        let mut spec = json!({"credentialsRef": {"name": SECRET}});
        spec[self.product.to_string()] = match self.product {
            Product::Vsphere => json!({
                "server": self.server, "datacenter": "DC0", "folder": FOLDER, "resourcePool": "DC0_C0/Resources", "datastore": "LocalDS_0",
            }),
            Product::Proxmox => json!({"servers": [self.server], "nodes": ["pve1", "pve2"], "isoStorage": "isos", "pool": "capw"}),
        };
        spec
    }

    /// The channel of the machines' bootstrap data.
    pub fn channel(&self) -> &'static str {
        match self.product {
            Product::Vsphere => "GuestInfo",
            Product::Proxmox => "ConfigDrive",
        }
    }

    /// The Secret that [`Self::driver`] names.
    pub fn login(&self, namespace: &str) -> Value {
        let user = match self.product {
            Product::Vsphere => "capw",
            Product::Proxmox => "capw@pve!capw",
        };
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": namespace},
            "stringData": {"username": user, "password": "secret", "ca.crt": self.authority},
        })
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        guardian::forget_group(self.process.id());
    }
}
