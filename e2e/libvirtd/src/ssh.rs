//! SSH to a daemon in session mode, by a real sshd with the rights of that daemon.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{Daemon, are_installed, until};

const PROGRAM: &str = "/usr/sbin/sshd";

/// A running sshd, which admits the user of its daemon with the key `ours` and shows the key `host`. It ends when dropped.
pub struct Sshd<'a> {
    daemon: &'a Daemon,
    child: Child,
    /// The port on the loopback address.
    pub port: u16,
}

impl<'a> Sshd<'a> {
    /// Starts sshd. `None`, with the reason printed, if the programs are missing.
    pub fn start(daemon: &'a Daemon) -> Option<Self> {
        if !are_installed(&[PROGRAM, "ssh-keygen", "ssh-keyscan"]) {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for (key, kind) in [("host", "ecdsa"), ("ours", "ed25519"), ("next", "ed25519"), ("other", "ed25519"), ("rsa", "rsa")] {
            let made = daemon.command("ssh-keygen").args(["-q", "-N", "", "-t", kind, "-f"]).arg(daemon.path(key)).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        let path = |name: &str| daemon.path(name).display().to_string();
        let lines = [
            format!("Port {port}"),
            "ListenAddress 127.0.0.1".into(),
            format!("HostKey {}", path("host")),
            "PidFile none".into(),
            format!("AuthorizedKeysFile {}", path("authorized_keys")),
            "PasswordAuthentication no".into(),
            "KbdInteractiveAuthentication no".into(),
            // The directory of the test belongs to its user, but its parents need not.
            "StrictModes no".into(),
            // Without PAM sshd treats an account that has no password as locked.
            "UsePAM yes".into(),
        ];
        fs::write(daemon.path("sshd_config"), lines.join("\n") + "\n").unwrap();
        let sshd = Self { daemon, child: listening(daemon, port), port };
        sshd.authorize(&["ours"]);
        Some(sshd)
    }

    /// Admits exactly the owners of these keys, as the page about libvirt shows it.
    pub fn authorize(&self, keys: &[&str]) {
        let public = keys.iter().map(|key| fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap());
        fs::write(self.path("authorized_keys"), public.map(|key| format!("restrict,port-forwarding {key}")).collect::<String>()).unwrap();
    }

    /// The file of a private key; the public key's file ends in `.pub`.
    pub fn path(&self, key: &str) -> PathBuf {
        self.daemon.path(key)
    }

    /// The output of `ssh-keyscan`: the content of a file known_hosts.
    pub fn known_hosts(&self) -> String {
        let output = self.daemon.command("ssh-keyscan").args(["-p", &self.port.to_string(), "127.0.0.1"]).output().unwrap();
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The user that sshd admits.
    pub fn user(&self) -> String {
        String::from_utf8(self.daemon.command("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned()
    }

    /// `spec.libvirt.address` of a WindowsHypervisor for the daemon at that socket.
    pub fn address(&self, socket: &Path) -> String {
        format!("qemu+ssh://{}@127.0.0.1:{}/session?socket={}", self.user(), self.port, socket.display())
    }

    /// Ends sshd.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts sshd again on the same port.
    pub fn launch(&mut self) {
        self.child = listening(self.daemon, self.port);
    }

    /// The log of sshd since its last start.
    pub fn log(&self) -> String {
        log(self.daemon)
    }
}

impl Drop for Sshd<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts sshd; it listens when this returns.
fn listening(daemon: &Daemon, port: u16) -> Child {
    let file = fs::File::create(daemon.path("sshd.log")).unwrap();
    let mut command = daemon.command(PROGRAM);
    command.args(["-D", "-e", "-f"]).arg(daemon.path("sshd_config")).stdin(Stdio::null()).stderr(file);
    let mut child = command.spawn().unwrap();
    until("sshd listens", || {
        assert!(child.try_wait().unwrap().is_none(), "sshd ends: {}", log(daemon));
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    child
}

fn log(daemon: &Daemon) -> String {
    fs::read_to_string(daemon.path("sshd.log")).unwrap()
}
