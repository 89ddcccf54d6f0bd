//! TLS to a real daemon, and the errors for a certificate that one side does not trust.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use capw_libvirtd::{Daemon, Tls};
use rcgen::ExtendedKeyUsagePurpose;

use super::rig::{IMAGE, LibvirtEndpoint, driver_at, only_the_next_login_holds};
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::authority::{Authority, Identity};
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::login::Login;
use crate::hypervisor::{Driver, DriverError};
use crate::vm::Power;

fn login(authority: &Authority, client: &Identity) -> Login {
    let values = [("ca.crt", &authority.pem), ("tls.crt", &client.certificate), ("tls.key", &client.key)];
    Login::new("lab/kvm1".into(), values.map(|(key, value)| (key.to_owned(), value.clone().into_bytes())).into())
}

/// Writes a daemon's configuration: it listens for TLS and admits one client.
fn configuration(directory: &Path, authority: &Authority, port: u16, client: &str) -> String {
    let server = authority.issue("daemon", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
    Tls { port, authority: &authority.pem, certificate: &server.certificate, key: &server.key, client }.configure(directory)
}

#[tokio::test]
async fn each_side_must_trust_the_certificate_of_the_other() {
    let (ours, other) = (Authority::new("lab"), Authority::new("other"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let Some(daemon) = Daemon::start_with(|directory| configuration(directory, &ours, port, "capw")).map(Arc::new) else { return };
    daemon.pool("tls", IMAGE);
    let client = |authority: &Authority, name: &str| authority.issue(name, &[], ExtendedKeyUsagePurpose::ClientAuth);
    let describe = async |login: &Login, host: &str| driver_at(format!("qemu+tls://{host}:{port}/session"), "tls", login)?.describe().await;
    let good = login(&ours, &client(&ours, "capw"));
    let endpoint = describe(&good, "127.0.0.1").await.unwrap();
    assert!(endpoint.version.starts_with("libvirt ") && endpoint.id.contains('-'), "{endpoint:?}");

    let rejected = |result: Result<_, DriverError>| matches!(result, Err(DriverError::Certificate(text)) if text.contains("nothing was sent"));
    assert!(rejected(describe(&login(&other, &client(&ours, "capw")), "127.0.0.1").await.map(|_| ())), "an authority that did not sign the daemon's");
    assert!(rejected(describe(&good, "localhost").await.map(|_| ())), "a name that is not in the daemon's certificate");
    for (what, client) in [("another authority", client(&other, "capw")), ("a name that the daemon does not allow", client(&ours, "mallory"))] {
        let result = describe(&login(&ours, &client), "127.0.0.1").await;
        assert!(matches!(result, Err(DriverError::Auth(_))), "{what}: {result:?}");
    }
    let without = Login::new("lab/kvm1".into(), [("ca.crt".to_owned(), ours.pem.clone().into_bytes())].into());
    let result = describe(&without, "127.0.0.1").await;
    assert!(matches!(&result, Err(DriverError::Auth(text)) if text.contains("tls.key") && text.contains("lab/kvm1")), "{result:?}");
}

/// The old login is revoked before the Secret has the new login: the driver reports that, and the new login continues with the same VMs.
#[tokio::test]
async fn a_login_that_is_revoked_is_told_and_the_next_one_goes_on() {
    let ours = Authority::new("lab");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let Some(daemon) = Daemon::start_with(|directory| configuration(directory, &ours, port, "capw")).map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let driver = |name: &str| {
        let login = login(&ours, &ours.issue(name, &[], ExtendedKeyUsagePurpose::ClientAuth));
        driver_at(format!("qemu+tls://127.0.0.1:{port}/session"), &endpoint.pool, &login).unwrap()
    };
    let (old, machine) = (driver("capw"), Machine::new("stays", endpoint.spec()));
    assert!(machine.create(&old, MANY).await);
    assert_eq!(machine.present(&driver("capw")).await.power, Power::On, "both hold for a while");
    daemon.stop();
    daemon.configure(&configuration(&daemon.path("c"), &ours, port, "capw-2"));
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    only_the_next_login_holds(&old, &driver("capw-2"), &machine, "tls_allowed_dn_list").await;
}
