//! SSH to a real daemon, through a real sshd without root rights.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use capw_libvirtd::{Daemon, Sshd};

use super::rig::{LibvirtEndpoint, driver_at, only_the_next_login_holds};
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::drivers::libvirt::driver::LibvirtDriver;
use crate::hypervisor::login::Login;
use crate::hypervisor::{Driver, DriverError, Wanted};
use crate::vm::{Power, StopMode};

/// Creates a driver with an identity, and the key that it expects of the host.
fn driver(sshd: &Sshd, endpoint: &LibvirtEndpoint, (identity, host): (&str, &str), socket: &Path) -> Result<LibvirtDriver, DriverError> {
    let [identity, host] = [identity.to_owned(), format!("{host}.pub")].map(|name| fs::read(sshd.path(&name)).unwrap());
    let hosts = [b"[127.0.0.1]:2222 ".as_slice(), &host].concat();
    let login = Login::new("lab/kvm1".into(), [("ssh-privatekey".to_owned(), identity), ("known_hosts".to_owned(), hosts)].into());
    driver_at(sshd.address(socket), &endpoint.pool, &login)
}

#[tokio::test]
async fn a_daemon_is_reached_through_ssh_by_keys_that_both_sides_know() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let Some(mut sshd) = Sshd::start(&daemon) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let socket = daemon.socket();

    let untrusted = driver(&sshd, &endpoint, ("ours", "other"), &socket).unwrap().describe().await.unwrap_err();
    assert!(matches!(&untrusted, DriverError::Certificate(text) if text.contains("nothing was sent") && text.contains("ssh-keyscan")), "{untrusted}");
    assert!(!sshd.log().contains("publickey"), "{}", sshd.log());
    let unknown = driver(&sshd, &endpoint, ("other", "host"), &socket).unwrap().describe().await.unwrap_err();
    assert!(matches!(&unknown, DriverError::Auth(text) if text.contains("authorized_keys") && text.contains(&sshd.user())), "{unknown}");
    let rsa = driver(&sshd, &endpoint, ("rsa", "host"), &socket).err().unwrap();
    assert!(matches!(&rsa, DriverError::Auth(text) if text.contains("Ed25519")), "{rsa}");
    let nowhere = driver(&sshd, &endpoint, ("ours", "host"), Path::new("/nonexistent/libvirt-sock")).unwrap().describe().await.unwrap_err();
    assert!(matches!(&nowhere, DriverError::Unreachable(text) if text.contains("/nonexistent/libvirt-sock") && text.contains("socket")), "{nowhere}");

    let ours = driver(&sshd, &endpoint, ("ours", "host"), &socket).unwrap();
    let machine = Machine::new("far", endpoint.spec());
    assert!(machine.create(&ours, MANY).await);
    assert!(endpoint.seed(&machine.key).await == Some(SeedImage::from(&machine.seed)), "what is uploaded arrives whole");
    let listing = ours.list(&Wanted { awaiting_reports: [machine.key.vm].into() }).await.unwrap();
    assert_eq!((listing.rows.len(), ours.describe().await.unwrap().id), (1, endpoint.driver().describe().await.unwrap().id));

    sshd.stop();
    drop(ours);
    let ours = driver(&sshd, &endpoint, ("ours", "host"), &socket).unwrap();
    let gone = ours.describe().await.unwrap_err();
    assert!(matches!(&gone, DriverError::Unreachable(text) if text.contains("sshd")), "{gone}");
    sshd.launch();
    assert_eq!(machine.present(&ours).await.power, Power::On, "the VM has run on");
    assert!(machine.delete(&ours, StopMode::Hard, MANY).await && endpoint.count().await == 0);
}

/// The host drops the old key before the Secret has the new key: the driver reports that, and the new key continues with the same VMs.
#[tokio::test]
async fn a_key_that_is_revoked_is_told_and_the_next_one_goes_on() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let Some(sshd) = Sshd::start(&daemon) else { return };
    let (endpoint, socket) = (LibvirtEndpoint::new(&daemon), daemon.socket());
    let driver = |key: &str| driver(&sshd, &endpoint, (key, "host"), &socket).unwrap();
    let (old, machine) = (driver("ours"), Machine::new("stays", endpoint.spec()));
    assert!(machine.create(&old, MANY).await);
    sshd.authorize(&["ours", "next"]);
    assert_eq!(machine.present(&driver("next")).await.power, Power::On, "both hold for a while");
    sshd.authorize(&["next"]);
    assert_eq!(machine.present(&old).await.power, Power::On, "what is connected stays so");
    daemon.stop();
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    only_the_next_login_holds(&old, &driver("next"), &machine, "authorized_keys").await;
}
