//! A libvirt daemon of its own for tests: in session mode, without rights, below one directory, with real QEMU VMs by TCG.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "test code: it fails by panicking and says what it leaves out"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The user that the daemon runs as when the test runs as root, whose daemon would be that of the whole host.
const NOBODY: u32 = 65_534;
/// A boot sector that writes `hello` to the serial port and waits for ever.
const BOOT: &[u8] = b"\xfa\x31\xc0\x8e\xd8\xbe\x16\x7c\xac\x84\xc0\x74\x06\xba\xf8\x03\xee\xeb\xf5\xf4\xeb\xfdhello\r\n\0";

/// A running daemon. Dropped, it ends with its VMs, and its files go.
pub struct Daemon {
    guard: Child,
    root: TempDir,
}

impl Daemon {
    /// `None`, and why, if the programs are not there.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| String::new())
    }

    /// With more lines of libvirtd.conf, which may name files in the directory that `configure` gets.
    #[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
    pub fn start_with(configure: impl FnOnce(&Path) -> String) -> Option<Self> {
        let missing: Vec<&str> = ["libvirtd", "virsh", "qemu-system-x86_64", "qemu-img"]
            .into_iter()
            .filter(|name| Command::new(name).arg("--version").output().is_err())
            .collect();
        if !missing.is_empty() {
            assert!(std::env::var_os("CI").is_none(), "missing: {missing:?}");
            eprintln!("NOT RUN: {} must be installed (libvirt-daemon-system, libvirt-clients, qemu-system-x86, qemu-utils)", missing.join(", "));
            return None;
        }
        // The paths of sockets below it may have 107 characters.
        let root = tempfile::Builder::new().prefix("lv").tempdir().unwrap();
        let daemon = Self { guard: guard(root.path()), root };
        for directory in ["home", "run/libvirt", "c/libvirt", "cache", "data", "pools"] {
            fs::create_dir_all(daemon.path(directory)).unwrap();
        }
        // No second daemon for logs, and no namespace of mounts, which a container may not make.
        fs::write(daemon.path("c/libvirt/qemu.conf"), "stdio_handler = \"file\"\nnamespaces = []\n").unwrap();
        let more = configure(&daemon.path("c"));
        daemon.configure(&more);
        daemon.own(daemon.root.path());
        daemon.launch();
        Some(daemon)
    }

    /// Writes libvirtd.conf, with these lines.
    pub fn configure(&self, more: &str) {
        let sockets = self.path("run/libvirt");
        fs::write(self.path("c/libvirt/libvirtd.conf"), format!("unix_sock_dir = \"{}\"\n{more}", sockets.display())).unwrap();
    }

    /// Starts the daemon; it is ready when this returns.
    pub fn launch(&self) {
        let mut command = self.command("libvirtd");
        command.arg("--daemon").arg("--pid-file").arg(self.pid_file()).arg("--config").arg(self.path("c/libvirt/libvirtd.conf"));
        if fs::read_to_string(self.path("c/libvirt/libvirtd.conf")).unwrap().contains("listen_tls") {
            command.arg("--listen");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "libvirtd does not start: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Ends the daemon. Its VMs run on.
    pub fn stop(&self) {
        let Ok(pid) = fs::read_to_string(self.pid_file()) else { return };
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let begun = Instant::now();
        while !fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(120), "libvirtd does not end two minutes after SIGTERM");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where clients reach it.
    pub fn socket(&self) -> PathBuf {
        self.path("run/libvirt/libvirt-sock")
    }

    /// Makes a pool with an image whose guest says hello. Returns its directory.
    pub fn pool(&self, name: &str, image: &str) -> PathBuf {
        self.pool_with(name, |directory| {
            let mut disk = BOOT.to_vec();
            disk.resize(510, 0);
            disk.extend(b"\x55\xaa");
            disk.resize(1 << 20, 0);
            fs::write(directory.join(image), disk).unwrap();
        })
    }

    /// Makes a pool of the images that `fill` writes into its directory. Returns that directory.
    pub fn pool_with(&self, name: &str, fill: impl FnOnce(&Path)) -> PathBuf {
        let directory = self.pools().join(name);
        fs::create_dir_all(&directory).unwrap();
        fill(&directory);
        self.own(&directory);
        self.virsh(["pool-define-as", name, "dir", "--target", directory.to_str().unwrap()]);
        self.virsh(["pool-start", name]);
        directory
    }

    /// Where the directories of the pools are.
    pub fn pools(&self) -> PathBuf {
        self.path("pools")
    }

    /// What libvirt's own client says.
    pub fn virsh<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.try_virsh(arguments);
        assert!(output.status.success(), "virsh: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, whether it succeeds or not.
    pub fn try_virsh<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let uri = format!("qemu:///session?socket={}", self.socket().display());
        self.command("virsh").arg("-c").arg(uri).args(arguments).output().unwrap()
    }

    /// Names of all domains.
    pub fn domains(&self) -> Vec<String> {
        self.virsh(["list", "--all", "--name"]).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Removes all domains.
    pub fn clear(&self) {
        for name in self.domains() {
            self.try_virsh(["destroy", &name]);
            self.try_virsh(["undefine", &name, "--nvram"]);
        }
    }

    /// Files of the daemon that carry the name of a VM, wherever they are, without logs.
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

    /// A program as the daemon's user.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, directory) in
            [("HOME", "home"), ("XDG_RUNTIME_DIR", "run"), ("XDG_CONFIG_HOME", "c"), ("XDG_CACHE_HOME", "cache"), ("XDG_DATA_HOME", "data")]
        {
            command.env(name, self.path(directory));
        }
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.root.path());
        command
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn pid_file(&self) -> PathBuf {
        self.path("run/libvirtd.pid")
    }

    /// Gives everything below a directory to the daemon's user.
    fn own(&self, directory: &Path) {
        if !is_root() {
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
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// What ends the daemon and its VMs, which outlive it, and removes their files: also when this program is killed.
fn guard(root: &Path) -> Child {
    const SCRIPT: &str = r#"
read -r _
for file in "$0"/run/libvirtd.pid "$0"/run/libvirt/qemu/run/*.pid; do [ -e "$file" ] && kill -s KILL "$(cat "$file")" 2> /dev/null; done
rm -rf -- "$0"
"#;
    let mut command = Command::new("sh");
    command.arg("-c").arg(SCRIPT).arg(root).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Of its own group, so that Ctrl-C in a terminal does not end it first.
    command.process_group(0).spawn().expect("the program sh runs")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
