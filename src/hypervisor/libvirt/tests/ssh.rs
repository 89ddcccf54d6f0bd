//! SSH to a real daemon, by a real sshd without rights.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use super::*;
use crate::hypervisor::contract::machine::MANY;

struct Sshd<'a> {
    daemon: &'a Daemon,
    child: Child,
    port: u16,
}

impl<'a> Sshd<'a> {
    /// `None`, and why, if the programs are not there.
    #[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
    fn start(daemon: &'a Daemon) -> Option<Self> {
        let missing: Vec<&str> = ["/usr/sbin/sshd", "/usr/bin/ssh-keygen"].into_iter().filter(|path| !std::path::Path::new(path).exists()).collect();
        if !missing.is_empty() {
            assert!(std::env::var_os("CI").is_none(), "missing: {missing:?}");
            eprintln!("NOT RUN: {} must be installed (openssh-server, openssh-client)", missing.join(", "));
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for (key, kind) in [("host", "ecdsa"), ("ours", "ed25519"), ("next", "ed25519"), ("other", "ed25519"), ("rsa", "rsa")] {
            let path = daemon.path(key);
            let made = daemon.command("ssh-keygen").args(["-q", "-N", "", "-t", kind, "-f"]).arg(path).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        authorize(daemon, &["ours"]);
        let path = |name: &str| daemon.path(name).display().to_string();
        let lines = [
            format!("Port {port}"),
            "ListenAddress 127.0.0.1".into(),
            format!("HostKey {}", path("host")),
            "PidFile none".into(),
            format!("AuthorizedKeysFile {}", path("authorized_keys")),
            "PasswordAuthentication no".into(),
            "KbdInteractiveAuthentication no".into(),
            // The directory of the test belongs to its user, but those above it need not.
            "StrictModes no".into(),
            // Without it sshd takes an account that has no password for a locked one.
            "UsePAM yes".into(),
        ];
        fs::write(daemon.path("sshd_config"), lines.join("\n") + "\n").unwrap();
        Some(Self { daemon, child: Self::launch(daemon, port), port })
    }

    /// It listens when this returns.
    fn launch(daemon: &Daemon, port: u16) -> Child {
        let log = fs::File::create(daemon.path("sshd.log")).unwrap();
        let mut command = daemon.command("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f"]).arg(daemon.path("sshd_config")).stdin(Stdio::null()).stderr(log);
        let mut child = command.spawn().unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "sshd ends: {}", fs::read_to_string(daemon.path("sshd.log")).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        child
    }

    fn user(&self) -> String {
        String::from_utf8(self.daemon.command("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned()
    }

    fn driver(&self, endpoint: &LibvirtEndpoint, login: &Login, socket: &str) -> Result<LibvirtDriver, DriverError> {
        driver_at(format!("qemu+ssh://{}@127.0.0.1:{}/session?socket={socket}", self.user(), self.port), &endpoint.pool, login)
    }

    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.daemon.path("sshd.log")).unwrap()
    }

    fn login(&self, identity: &str, host: &str) -> Login {
        let [identity, host] = [identity.to_owned(), format!("{host}.pub")].map(|name| fs::read(self.daemon.path(&name)).unwrap());
        let hosts = [b"[127.0.0.1]:2222 ".as_slice(), &host].concat();
        Login::new("lab/kvm1".into(), [("ssh-privatekey".to_owned(), identity), ("known_hosts".to_owned(), hosts)].into())
    }
}

/// As the page about libvirt shows it.
fn authorize(daemon: &Daemon, keys: &[&str]) {
    let public = keys.iter().map(|key| fs::read_to_string(daemon.path(&format!("{key}.pub"))).unwrap());
    fs::write(daemon.path("authorized_keys"), public.map(|key| format!("restrict,port-forwarding {key}")).collect::<String>()).unwrap();
}

impl Drop for Sshd<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_daemon_is_reached_through_ssh_by_keys_that_both_sides_know() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let Some(mut sshd) = Sshd::start(&daemon) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let socket = daemon.socket().display().to_string();

    let untrusted = sshd.driver(&endpoint, &sshd.login("ours", "other"), &socket).unwrap().describe().await.unwrap_err();
    assert!(matches!(&untrusted, DriverError::Certificate(text) if text.contains("nothing was sent") && text.contains("ssh-keyscan")), "{untrusted}");
    assert!(!sshd.log().contains("publickey"), "{}", sshd.log());
    let unknown = sshd.driver(&endpoint, &sshd.login("other", "host"), &socket).unwrap().describe().await.unwrap_err();
    assert!(matches!(&unknown, DriverError::Auth(text) if text.contains("authorized_keys") && text.contains(&sshd.user())), "{unknown}");
    let rsa = sshd.driver(&endpoint, &sshd.login("rsa", "host"), &socket).err().unwrap();
    assert!(matches!(&rsa, DriverError::Auth(text) if text.contains("Ed25519")), "{rsa}");
    let nowhere = sshd.driver(&endpoint, &sshd.login("ours", "host"), "/nonexistent/libvirt-sock").unwrap().describe().await.unwrap_err();
    assert!(matches!(&nowhere, DriverError::Unreachable(text) if text.contains("/nonexistent/libvirt-sock") && text.contains("socket")), "{nowhere}");

    let ours = sshd.driver(&endpoint, &sshd.login("ours", "host"), &socket).unwrap();
    let machine = Machine::new("far", endpoint.spec());
    assert!(machine.create(&ours, MANY).await);
    assert!(endpoint.seed(&machine.key).await == Some(SeedImage::from(&machine.seed)), "what is uploaded arrives whole");
    let listing = ours.list(&Wanted { words_of: [machine.key.vm].into() }).await.unwrap();
    assert_eq!((listing.rows.len(), ours.describe().await.unwrap().id), (1, endpoint.driver().describe().await.unwrap().id));

    let login = sshd.login("ours", "host");
    sshd.end();
    drop(ours);
    let ours = sshd.driver(&endpoint, &login, &socket).unwrap();
    let gone = ours.describe().await.unwrap_err();
    assert!(matches!(&gone, DriverError::Unreachable(text) if text.contains("sshd")), "{gone}");
    sshd.child = Sshd::launch(&daemon, sshd.port);
    assert_eq!(machine.present(&ours).await.power, Power::On, "the VM has run on");
    assert!(machine.delete(&ours, StopMode::Hard, MANY).await && endpoint.count().await == 0);
}

/// The old key is taken from the host before the Secret has the new one: that is told, and then work goes on with the same VMs.
#[tokio::test]
async fn a_key_that_is_revoked_is_told_and_the_next_one_goes_on() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let Some(sshd) = Sshd::start(&daemon) else { return };
    let (endpoint, socket) = (LibvirtEndpoint::new(&daemon), daemon.socket().display().to_string());
    let driver = |key: &str| sshd.driver(&endpoint, &sshd.login(key, "host"), &socket).unwrap();
    let (old, machine) = (driver("ours"), Machine::new("stays", endpoint.spec()));
    assert!(machine.create(&old, MANY).await);
    authorize(&daemon, &["ours", "next"]);
    assert_eq!(machine.present(&driver("next")).await.power, Power::On, "both hold for a while");
    authorize(&daemon, &["next"]);
    assert_eq!(machine.present(&old).await.power, Power::On, "what is connected stays so");
    daemon.stop();
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    only_the_next_login_holds(&old, &driver("next"), &machine, "authorized_keys").await;
}
