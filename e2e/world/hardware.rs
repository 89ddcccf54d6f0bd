//! Real VMs: a libvirt daemon with an image whose Linux guest stands for a Windows machine. It must not judge.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use capw_libvirtd::{Daemon, Mode};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::capw::{files, program};
use super::client::text;
use super::control_plane::ControlPlane;
use super::scratch;
use super::tools::checkout;
use super::wine::skip;

/// The image. Its name states the Windows version of its guests.
pub const IMAGE: &str = "windows-server-2022";
/// The pool with the image.
pub const POOL: &str = "images";

/// A daemon whose VMs become nodes of a cluster: in system mode where possible. `None`, with the reason printed, if the test `name` cannot run here.
pub fn daemon(name: &str, of: &ControlPlane) -> Option<Daemon> {
    let daemon = Daemon::start_system().or_else(Daemon::start)?;
    if daemon.mode() == Mode::System {
        tokio::spawn(forward(daemon.listen((capw_libvirtd::HOST, of.port()).into()), of.port()));
    }
    let mut made = Ok(());
    daemon.pool_with(POOL, |directory| made = guest(of.port(), &directory.join(IMAGE)));
    made.map(|()| daemon).inspect_err(|said| skip(name, said)).ok()
}

/// Forwards connections of VMs to a port of this machine's loopback address, while the listener is open.
async fn forward(listener: std::net::TcpListener, port: u16) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (mut guest, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            tokio::io::copy_bidirectional(&mut guest, &mut server).await
        });
    }
}

/// Builds a disk image whose Linux stands for Windows and joins a cluster: the cluster on the loopback address of this machine with
/// `port`, or any that it reaches. The error names what is missing.
pub fn guest(port: u16, file: &Path) -> Result<(), String> {
    let tools = checkout().join("e2e/tools/guest");
    let run = |script: &str, arguments: &[&OsStr]| {
        let output = Command::new("bash").arg(tools.join(script)).args(arguments).output().expect("the program bash runs");
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    run("build.sh", &[]).unwrap_or_else(|said| panic!("e2e/tools/guest/build.sh: {said}"));
    let (program, port) = (program(), port.to_string());
    run("image.sh", &[program.as_ref(), port.as_ref(), IMAGE.as_ref(), file.as_ref()]).map_err(|said| format!("a guest for real VMs: {said}"))
}

/// A daemon whose VMs start an image of the user, which stays unchanged. The error names what is missing.
pub fn daemon_with(image: &Path) -> Result<Daemon, String> {
    let image = image.canonicalize().map_err(|error| format!("IMAGE {}: {error}", image.display()))?;
    let daemon = Daemon::start().ok_or("libvirt and QEMU are missing: the line above says which packages to install")?;
    let qemu_img = |arguments: &[&OsStr]| {
        let output = daemon.command("qemu-img").args(arguments).output().map_err(|error| format!("qemu-img: {error}"))?;
        output.status.success().then_some(output.stdout).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            format!("IMAGE {} cannot be used by the daemon, which has no rights of its own: {said}", image.display())
        })
    };
    let described = qemu_img(&["info".as_ref(), "--output=json".as_ref(), image.as_ref()])?;
    let described: Value = serde_json::from_slice(&described).map_err(|error| format!("qemu-img info: {error}"))?;
    let format = text(&described, "/format").to_owned();
    let mut made = Ok(Vec::new());
    daemon.pool_with(POOL, |directory| {
        let overlay = daemon.path("overlay");
        let create = ["create", "-q", "-f", "qcow2", "-F", &format, "-b"].map(OsStr::new);
        made = qemu_img(&[&create[..], &[image.as_ref(), overlay.as_ref()]].concat());
        if made.is_ok() {
            made = std::fs::rename(overlay, directory.join(IMAGE)).map(|()| Vec::new()).map_err(|error| format!("the pool: {error}"));
        }
    });
    made.map(|_| daemon)
}

/// The logs of a daemon's guests, and QEMU's logs about them: after a failure they are kept with the files of the story.
pub struct Words<'a>(pub &'a Daemon);

impl Drop for Words<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let pools = std::fs::read_dir(self.0.pools()).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        // A guest's log and QEMU's log about it have the same name.
        scratch::keep(&self.0.path("consoles"), &pools.flat_map(|pool| files(&pool, "log")).collect::<Vec<_>>());
        scratch::keep(&self.0.path("qemu"), &files(&logs_of_qemu(self.0), "log"));
    }
}

/// The directory of QEMU's logs of each VM, which also state why the VM ended. They outlive the VM.
fn logs_of_qemu(daemon: &Daemon) -> PathBuf {
    daemon.path(if daemon.mode() == Mode::System { "var/log/libvirt/qemu" } else { "cache/libvirt/qemu/log" })
}

/// The reason of each end of a VM, as libvirt names it (`virDomainShutoffReason`), e.g. `shutdown` or `destroyed`.
pub fn ends(daemon: &Daemon, domain: &str) -> Vec<String> {
    let file = logs_of_qemu(daemon).join(format!("{domain}.log"));
    let log = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    log.lines().filter_map(|line| line.split_once(": shutting down, reason=")).map(|(_, reason)| reason.to_owned()).collect()
}

/// `spec` of a WindowsHypervisor for this daemon.
pub fn hypervisor(daemon: &Daemon) -> Value {
    json!({"libvirt": {"address": daemon.address(), "pool": POOL, "acceleration": "TCG"}})
}

/// The input of `capw hypervisor`: a WindowsHypervisor for this daemon, and a machine with few resources.
pub fn manifest(daemon: &Daemon) -> String {
    let api = "infrastructure.cluster.x-k8s.io/v1alpha1";
    let mut spec = json!({});
    shrink(&mut spec, &mut json!({"kubelet": {}}));
    let hypervisor = json!({"apiVersion": api, "kind": "WindowsHypervisor", "metadata": {"name": "lab"}, "spec": hypervisor(daemon)});
    let machine = json!({"apiVersion": api, "kind": "WindowsMachine", "metadata": {"name": "one"}, "spec": spec});
    // JSON is YAML.
    format!("{hypervisor}\n---\n{machine}\n")
}

/// Reduces size and reserves in the specifications of machines.
pub fn shrink(machine: &mut Value, bootstrap: &mut Value) {
    *machine = json!({"image": IMAGE, "cpus": 1, "memory": "2Gi", "firmware": {"type": "BIOS"}});
    for reserved in ["systemReserved", "kubeReserved"] {
        bootstrap["kubelet"][reserved] = json!({"cpu": "100m", "memory": "128Mi"});
    }
}

/// Removes the VM of a WindowsMachine as an administrator of the host would.
pub fn remove(daemon: &Daemon, machine: &str) {
    let domain = daemon.domains().into_iter().find(|domain| domain.starts_with(machine)).unwrap_or_else(|| panic!("no VM of {machine}"));
    for verb in ["destroy", "undefine"] {
        daemon.virsh([verb, &domain]);
    }
}

/// The output of a VM's guest on its serial port.
pub fn console(daemon: &Daemon, domain: &str) -> String {
    let file = daemon.pools().join(POOL).join(format!("{domain}.log"));
    String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).into_owned()
}

/// Names of the volumes in the pool, without the image.
pub fn volumes(daemon: &Daemon) -> Vec<String> {
    let listed = daemon.virsh(["vol-list", "--pool", POOL]);
    let names = listed.lines().skip(2).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != IMAGE).map(str::to_owned).collect()
}
