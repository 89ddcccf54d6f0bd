//! A separate libvirt daemon for tests, below one directory, with real QEMU VMs by TCG: in session mode, without rights, or in system mode.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "test code: it fails by panicking and says what it leaves out"
)]

mod guest;
mod kept;
pub mod polkit;
mod ssh;
mod system;
mod tls;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use capw_patience::Patience;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use self::guest::writer;
pub use self::ssh::Sshd;
pub use self::system::{HOST, NETWORK, RELEASE};
pub use self::tls::Tls;

/// The user that the daemon runs as when the test runs as root, because root's daemon would belong to the whole host.
const NOBODY: u32 = 65_534;
/// The limit for the daemon to start or end.
const LIMIT: Duration = Duration::from_secs(120);
/// The rights of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The rights of an unprivileged user: no networks, and QEMU runs as that user.
    Session,
    /// All rights, as root, in separate namespaces.
    System,
}

/// A running daemon. When dropped, it ends with its VMs, and its files are removed.
pub struct Daemon {
    mode: Mode,
    guard: Child,
    root: TempDir,
}

impl Daemon {
    /// Starts a daemon in session mode. `None`, with the reason printed, if the programs are missing.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| String::new())
    }

    /// Starts a daemon in system mode, with [`NETWORK`]. `None`, with the reason printed, without root or if the programs are missing.
    pub fn start_system() -> Option<Self> {
        Self::start_system_with("", |_| {})
    }

    /// Starts a daemon in system mode with more lines of libvirtd.conf; `before` runs before the daemon starts.
    #[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
    fn start_system_with(more: &str, before: impl FnOnce(&Self)) -> Option<Self> {
        if !is_root() {
            assert!(std::env::var_os("CI").is_none(), "libvirt in system mode needs root");
            eprintln!("NOT RUN: libvirt in system mode needs root");
            return None;
        }
        if !are_installed(&["libvirtd", "virtlogd", "virsh", "qemu-system-x86_64", "qemu-img", "dnsmasq", "iptables", "ip", "nsenter", "unshare"]) {
            return None;
        }
        let root = tempfile::Builder::new().prefix("lv").tempdir().unwrap();
        // QEMU's user must be able to reach the pools.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        kept::restore(Mode::System, root.path());
        let daemon = Self { mode: Mode::System, guard: system::namespaces(root.path()), root };
        daemon.configure(more);
        before(&daemon);
        daemon.run("virtlogd", &["--daemon"]);
        daemon.launch();
        daemon.network(NETWORK, &system::network());
        Some(daemon)
    }

    /// Starts a daemon in session mode with more lines of libvirtd.conf, which may name files in the directory that `configure` gets.
    pub fn start_with(configure: impl FnOnce(&Path) -> String) -> Option<Self> {
        if !are_installed(&["libvirtd", "virsh", "qemu-system-x86_64", "qemu-img"]) {
            return None;
        }
        // Paths of sockets below this directory may have 107 characters.
        let root = tempfile::Builder::new().prefix("lv").tempdir().unwrap();
        let daemon = Self { mode: Mode::Session, guard: guard(root.path()), root };
        for directory in ["bin", "home", "run/libvirt", "c/libvirt", "cache", "data", "pools"] {
            fs::create_dir_all(daemon.path(directory)).unwrap();
        }
        // No second daemon for logs, and no mount namespace, which a container may not create.
        fs::write(daemon.path("c/libvirt/qemu.conf"), "stdio_handler = \"file\"\nnamespaces = []\n").unwrap();
        kept::restore(Mode::Session, daemon.root.path());
        let more = configure(&daemon.path("c"));
        daemon.configure(&more);
        daemon.own(daemon.root.path());
        daemon.launch();
        Some(daemon)
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Writes libvirtd.conf with these additional lines.
    pub fn configure(&self, more: &str) {
        let sockets = self.path("run/libvirt");
        fs::write(self.configuration(), format!("unix_sock_dir = \"{}\"\n{more}", sockets.display())).unwrap();
    }

    /// Starts the daemon; it is ready when this returns.
    pub fn launch(&self) {
        let (pid_file, configuration) = (self.pid_file(), self.configuration());
        let mut arguments = vec!["--daemon", "--pid-file", pid_file.to_str().unwrap(), "--config", configuration.to_str().unwrap()];
        if fs::read_to_string(&configuration).unwrap().contains("listen_tls") {
            arguments.push("--listen");
        }
        self.run("libvirtd", &arguments);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} does not start: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Defines and starts a network.
    pub fn network(&self, name: &str, xml: &str) {
        let file = self.path(&format!("{name}.xml"));
        fs::write(&file, xml).unwrap();
        self.virsh(["net-define", file.to_str().unwrap()]);
        self.virsh(["net-start", name]);
    }

    /// Lets the VMs of a daemon in system mode reach listeners on an address of this machine, as a host's VMs do in its network.
    pub fn join_network(&self) {
        system::join_network(self.root.path());
    }

    /// Opens a listener that VMs of a daemon in system mode can reach.
    pub fn listen(&self, at: SocketAddr) -> TcpListener {
        system::listen(self.root.path(), at)
    }

    /// Ends the daemon. Its VMs run on.
    pub fn stop(&self) {
        let Ok(pid) = fs::read_to_string(self.pid_file()) else { return };
        let pid = pid.trim();
        if self.mode == Mode::System {
            self.command("kill").arg(pid).status().unwrap();
            return until("libvirtd ends after SIGTERM", || {
                !self.command("kill").args(["-0", pid]).stderr(Stdio::null()).status().unwrap().success()
            });
        }
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        until("libvirtd ends after SIGTERM", || fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty());
    }

    /// Suspends the daemon: it accepts connections and answers nothing.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Resumes a frozen daemon.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// From now on, in session mode, the daemon creates no disk file while the returned file exists.
    pub fn hold_disks(&self) -> PathBuf {
        let (held, program) = (self.path("held"), self.path("bin/qemu-img"));
        fs::write(&held, "").unwrap();
        let script = format!("#!/bin/sh\nwhile [ -e '{}' ]; do sleep 0.02; done\nPATH=\"${{PATH#*:}}\"\nexec qemu-img \"$@\"\n", held.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        held
    }

    fn signal(&self, signal: &str) {
        let pid = fs::read_to_string(self.pid_file()).unwrap();
        assert!(self.command("kill").args([signal, pid.trim()]).status().unwrap().success(), "{signal} to libvirtd");
    }

    /// The daemon's socket for clients.
    pub fn socket(&self) -> PathBuf {
        self.path("run/libvirt/libvirt-sock")
    }

    /// Creates a pool with an image whose guest prints `hello`. Returns its directory.
    pub fn pool(&self, name: &str, image: &str) -> PathBuf {
        self.pool_with(name, |directory| fs::write(directory.join(image), guest::greeter()).unwrap())
    }

    /// Creates a pool of the images that `fill` writes into its directory. Returns that directory.
    pub fn pool_with(&self, name: &str, fill: impl FnOnce(&Path)) -> PathBuf {
        let directory = self.pools().join(name);
        fs::create_dir_all(&directory).unwrap();
        fill(&directory);
        self.own(&directory);
        self.virsh(["pool-define-as", name, "dir", "--target", directory.to_str().unwrap()]);
        self.virsh(["pool-start", name]);
        directory
    }

    /// The parent directory of the pools.
    pub fn pools(&self) -> PathBuf {
        self.path("pools")
    }

    /// Runs libvirt's own client and returns its output.
    pub fn virsh<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.try_virsh(arguments);
        assert!(output.status.success(), "virsh: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs libvirt's own client, whether it succeeds or not.
    pub fn try_virsh<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command("virsh").arg("-c").arg(format!("qemu://{}", self.place(&self.socket()))).args(arguments).output().unwrap()
    }

    /// `spec.libvirt.address` of a WindowsHypervisor for this daemon.
    pub fn address(&self) -> String {
        self.address_at(&self.socket())
    }

    /// `spec.libvirt.address` of a WindowsHypervisor for this daemon through another socket.
    pub fn address_at(&self, socket: &Path) -> String {
        format!("qemu+unix://{}", self.place(socket))
    }

    fn place(&self, socket: &Path) -> String {
        let mode = if self.mode == Mode::System { "system" } else { "session" };
        format!("/{mode}?socket={}", socket.display())
    }

    /// Names of all domains.
    pub fn domains(&self) -> Vec<String> {
        self.virsh(["list", "--all", "--name"]).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The address that [`NETWORK`] has leased to the last interface of a domain, by libvirt's own client.
    pub fn lease(&self, domain: &str) -> Option<IpAddr> {
        let interfaces = self.virsh(["domiflist", domain]);
        let leases = self.virsh(["net-dhcp-leases", NETWORK, interfaces.split_whitespace().last()?]);
        leases.split_whitespace().find_map(|word| word.split_once('/')?.0.parse().ok())
    }

    /// Removes all domains.
    pub fn clear(&self) {
        for name in self.domains() {
            self.try_virsh(["destroy", &name]);
            self.try_virsh(["undefine", &name, "--nvram"]);
        }
    }

    /// Files of the daemon that carry the name of a VM, in any directory, without logs.
    pub fn files_of(&self, vm: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![self.root.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for path in fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path()) {
                let is_log = path.components().any(|part| part.as_os_str() == "log");
                if path.is_dir() {
                    directories.push(path);
                } else if !is_log && path.to_string_lossy().contains(vm) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// A program as the daemon's user, in the daemon's namespaces.
    pub fn command(&self, program: &str) -> Command {
        if self.mode == Mode::System {
            return system::command(self.root.path(), program);
        }
        let mut command = Command::new(program);
        for (name, directory) in
            [("HOME", "home"), ("XDG_RUNTIME_DIR", "run"), ("XDG_CONFIG_HOME", "c"), ("XDG_CACHE_HOME", "cache"), ("XDG_DATA_HOME", "data")]
        {
            command.env(name, self.path(directory));
        }
        command.env("PATH", self.programs());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.root.path());
        command
    }

    /// PATH in session mode.
    #[allow(clippy::disallowed_methods, reason = "the PATH of the tests goes on")]
    fn programs(&self) -> OsString {
        let programs = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(std::iter::once(self.path("bin")).chain(std::env::split_paths(&programs))).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn configuration(&self) -> PathBuf {
        self.path(if self.mode == Mode::System { "etc/libvirt/libvirtd.conf" } else { "c/libvirt/libvirtd.conf" })
    }

    fn pid_file(&self) -> PathBuf {
        self.path("run/libvirtd.pid")
    }

    /// Gives everything below a directory to the daemon's user.
    fn own(&self, directory: &Path) {
        if self.mode == Mode::System || !is_root() {
            return;
        }
        chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.own(&path);
            } else {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A second panic would end the test without its message.
        if !std::thread::panicking() {
            kept::keep(self.mode, self.root.path());
        }
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Starts the process that ends the daemon and its VMs, which would outlive it, and removes their files: also when this program is killed.
fn guard(root: &Path) -> Child {
    const SCRIPT: &str = r#"
read -r _
for file in "$0"/run/libvirtd.pid "$0"/run/libvirt/qemu/run/*.pid; do [ -e "$file" ] && kill -s KILL "$(cat "$file")" 2> /dev/null; done
rm -rf -- "$0"
"#;
    guarded(Command::new("sh").arg("-c").arg(SCRIPT).arg(root).stderr(Stdio::null()))
}

/// Starts a process that ends when its standard input closes.
fn guarded(command: &mut Command) -> Child {
    // A group of its own, so that Ctrl-C in a terminal does not end it first.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn().expect("the program sh runs")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut patience = Patience::new(LIMIT);
    while !is_so() {
        assert!(!patience.is_over(), "waited {patience} for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether these programs are installed; prints the packages to install if one is missing.
#[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
fn are_installed(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| Command::new(name).arg("--version").output().is_err()).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "missing: {missing:?}");
    eprintln!(
        "NOT RUN: {} must be installed (libvirt-daemon-system, libvirt-clients, qemu-system-x86, qemu-utils, dnsmasq-base, iptables, iproute2, polkitd, dbus, openssh-server)",
        missing.join(", ")
    );
    false
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
