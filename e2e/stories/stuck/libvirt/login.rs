//! A host that is reached by TLS, and CAPW's login for it.

use capw_libvirtd::{Daemon, Tls};
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::json;

use super::super::judge::{both_say, hypervisor_says, unseen_and_ready};
use super::Host;
use crate::authority::{Authority, Identity};
use crate::workers::Workers;
use crate::world::{ControlPlane, free_port, hardware};

/// The name of the case, which its namespace, pool and Secret share.
const CASE: &str = "login";

/// A daemon in session mode, which CAPW reaches over the network, and the authority of both sides.
pub struct BehindTls {
    pub daemon: Daemon,
    authority: Authority,
    own: Identity,
    port: u16,
}

impl BehindTls {
    /// Starts a daemon that admits the client `first`. `None`, with the reason printed, if the programs are missing.
    pub fn start() -> Option<Self> {
        let (authority, port) = (Authority::new("lab"), free_port());
        let own = authority.issue("daemon", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
        let daemon = Daemon::start_with(|directory| tls(&authority, &own, port, "first").configure(directory))?;
        Some(Self { daemon, authority, own, port })
    }

    /// Restarts the daemon so that it admits only this client. VMs run on.
    fn admit(&self, client: &str) {
        self.daemon.stop();
        self.daemon.configure(&tls(&self.authority, &self.own, self.port, client).configure(&self.daemon.path("c")));
        self.daemon.launch();
        self.daemon.try_virsh(["pool-start", CASE]);
    }

    /// Writes the login of a client into the Secret, with the authority that CAPW should trust.
    async fn log_in(&self, cp: &ControlPlane, workers: &Workers, client: &str, trusted: &Authority) {
        let Identity { certificate, key } = self.authority.issue(client, &[], ExtendedKeyUsagePurpose::ClientAuth);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CASE, "namespace": workers.namespace},
            "stringData": {"ca.crt": trusted.pem, "tls.crt": certificate, "tls.key": key},
        });
        workers.log_in(cp, secret).await;
    }
}

fn tls<'a>(authority: &'a Authority, own: &'a Identity, port: u16, client: &'a str) -> Tls<'a> {
    Tls { port, authority: &authority.pem, certificate: &own.certificate, key: &own.key, client }
}

/// The Secret has another authority than the daemon's; when that is fixed, the daemon rejects the login until the Secret has the next one.
/// CAPW and the VM keep running all the time.
pub async fn login_changed(cp: &ControlPlane, behind: &BehindTls) {
    let host = Host { cp, daemon: &behind.daemon };
    behind.daemon.pool(CASE, hardware::IMAGE);
    let mut workers = host.one_machine_by(CASE, &format!("qemu+tls://127.0.0.1:{}/session", behind.port)).await;
    workers.driver["credentialsRef"] = json!({"name": CASE});
    behind.log_in(cp, &workers, "first", &Authority::new("stranger")).await;
    workers.apply(cp).await;
    let says = ["the certificate of 127.0.0.1 is not trusted", "Check ca.crt in the Secret of spec.credentialsRef", "nothing was sent"];
    both_say(cp, &workers, "CertificateRejected", &says).await;
    assert_eq!(behind.daemon.domains(), Vec::<String>::new());
    behind.log_in(cp, &workers, "first", &behind.authority).await;
    host.settled(&workers).await;

    let vm = host.vm(CASE).await;
    // A VM that restarts gets another ID.
    let run = || (behind.daemon.domains(), behind.daemon.virsh(["domuuid", &vm]), behind.daemon.virsh(["domid", &vm]));
    let before = run();
    behind.admit("second");
    let says = ["127.0.0.1 does not accept our certificate", "tls_allowed_dn_list", "libvirtd.conf"];
    hypervisor_says(cp, CASE, "Unauthorized", &says).await;
    unseen_and_ready(cp, CASE, &says).await;
    assert_eq!(run(), before, "on the host");
    behind.log_in(cp, &workers, "second", &behind.authority).await;
    host.settled(&workers).await;
    assert_eq!((run(), host.vm(CASE).await), (before, vm.clone()), "by the next login");
}
