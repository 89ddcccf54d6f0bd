//! Causes that prevent the start of a VM. Only a VM that runs counts as started.

use std::fs;
use std::sync::Arc;

use capw_libvirtd::Daemon;

use super::between::{Answer, Between};
use super::rig::LibvirtEndpoint;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine, Requests};
use crate::hypervisor::contract::program::until;
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::wire::Fate;
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Journal, Nic, Power, Thing, VmSpec};

/// The procedures of libvirt's protocol.
const DOMAIN_IS_ACTIVE: u32 = 150;
const START: u32 = 196;
const OPERATION_INVALID: u32 = 55;

/// Defines a network, which stays inactive: a daemon without root rights cannot start it.
fn define_network(endpoint: &LibvirtEndpoint, name: &str) {
    let path = endpoint.directory.with_extension("network");
    fs::write(&path, format!("<network><name>{name}</name></network>")).unwrap();
    endpoint.daemon.virsh(["net-define", path.to_str().unwrap()]);
}

fn with_network(name: &str, spec: VmSpec) -> VmSpec {
    VmSpec { nics: vec![Nic { network: Some(name.into()), ..spec.nics[0].clone() }], ..spec }
}

#[tokio::test]
async fn a_network_that_is_not_active_is_told_before_anything_is_made() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    define_network(&endpoint, "idle");
    let (driver, machine) = (endpoint.driver(), Machine::new("waits", with_network("idle", endpoint.spec())));
    let told = |error: Option<DriverError>| {
        let Some(DriverError::Missing { thing: Thing::Network, text }) = error else { panic!("{error:?}") };
        assert!(text.starts_with("network \"idle\" is not active on qemu+unix:///session?socket="), "{text}");
        assert!(text.ends_with(": start it (virsh net-start idle, and virsh net-autostart idle for the future)"), "{text}");
    };
    told(driver.check(&machine.spec, machine.seed.kind()).await.err());
    told(driver.advance(&machine.key, &machine.spec, &machine.seed, &Journal::new(), &crate::vm::Observed::Absent).await.err());
    assert_eq!(endpoint.count().await, 0);
    // A VM that was defined before the network was stopped.
    let defined = Machine::new("waits", endpoint.spec());
    assert!(defined.create(&*driver, MANY).await);
    daemon.virsh(["destroy", Volumes::of(&machine.key).vm()]);
    let observed = defined.see(&*driver).await;
    told(driver.advance(&machine.key, &machine.spec, &machine.seed, &Journal::new(), &observed).await.err());
}

/// The error code for a domain that already runs also has many other meanings.
#[tokio::test]
async fn a_disk_that_another_process_is_making_is_waited_for() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (machine, held) = (Arc::new(Machine::new("waits", endpoint.spec())), daemon.hold_disks());
    let (winner, driver) = (machine.clone(), endpoint.driver());
    let winner = tokio::spawn(async move { winner.advance(&*driver).await });
    let disk = Volumes::of(&machine.key).system();
    until("the disk is in the pool", || daemon.virsh(["vol-list", &endpoint.pool]).contains(&disk)).await;
    let (driver, told) = (endpoint.driver(), format!("another process is making volume {disk}"));
    let error = machine.advance(&*driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Transient(text) if text.contains(&told)), "{error:?}");
    assert_eq!((daemon.domains().len(), endpoint.files().contains(&disk)), (0, false));
    fs::remove_file(held).unwrap();
    assert_eq!(winner.await.unwrap(), Ok(DriverStep::Changed));
    assert!(machine.create(&*driver, MANY).await && endpoint.count().await == 1);
}

#[tokio::test]
async fn a_start_that_is_refused_is_one_only_if_the_vm_runs() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machine = Machine::new("starts", endpoint.spec());
    const WORDS: &str = "Requested operation is not valid: domain is already running";
    let between =
        Between::new(&daemon.socket(), |_, called, _| if called == START { Answer::Refused(OPERATION_INVALID, WORDS) } else { Answer::Real });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    for _ in 0..3 {
        let error = machine.advance(&*driver).await.unwrap_err();
        assert!(error.to_string().contains(WORDS), "{error}");
        assert_eq!(machine.present(&*driver).await.power, Power::Off);
    }
    // Another process starts the VM first, and libvirt reports it with a text that CAPW does not know.
    let (name, other) = (Volumes::of(&machine.key).vm().to_owned(), daemon.clone());
    let between = Between::new(&daemon.socket(), move |_, called, _| {
        if called != START {
            return Answer::Real;
        }
        other.virsh(["start", &name]);
        Answer::Refused(OPERATION_INVALID, "l'opération demandée n'est pas valide")
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    assert_eq!(machine.advance(&*driver).await, Ok(DriverStep::Changed));
    assert_eq!(machine.present(&*endpoint.driver()).await.power, Power::On);
}

/// Two processes create one VM: one replaces the drive while the other starts the VM with it.
#[tokio::test]
async fn a_drive_that_goes_during_a_start_is_no_missing_image() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machine = Machine::new("replaced", endpoint.spec());
    let drive = endpoint.file(&Volumes::of(&machine.key).drive());
    let between = Between::new(&daemon.socket(), move |_, called, _| {
        if called == START {
            let _ = fs::remove_file(&drive);
        }
        Answer::Real
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    let error = machine.advance(&*driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Transient(text) if text.contains("configuration drive")), "{}: {error}", error.label());
    assert!(machine.create(&*endpoint.driver(), MANY).await);
}

/// A repeated start takes its own request, and one request that reads the drive.
#[tokio::test]
async fn a_start_that_is_tried_again_makes_no_drive_that_is_there() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machine = Machine::new("again", endpoint.spec());
    let refuses = |_: u32, called: u32, _: &[u8]| match called {
        START => Answer::Refused(9, "operation failed: the host is not ready"),
        DOMAIN_IS_ACTIVE => panic!("nothing says that it runs"),
        _ => Answer::Real,
    };
    let between = Between::new(&daemon.socket(), refuses);
    let requests = Requests::default();
    let driver = endpoint.at(between.socket(), requests.hook());
    assert!(machine.advance(&*driver).await.is_err());
    requests.take();
    assert!(machine.advance(&*driver).await.is_err());
    assert_eq!(requests.take(), ["DomainGetXmlDesc", "StorageVolDownload", "DomainCreateWithFlags"]);
    // The drive is torn, or holds an earlier seed.
    let drive = endpoint.file(&Volumes::of(&machine.key).drive());
    let whole = fs::read(&drive).unwrap();
    for bytes in [&whole[..whole.len() / 2], &b"other"[..]] {
        fs::write(&drive, bytes).unwrap();
        assert!(machine.advance(&*driver).await.is_err());
        assert!(requests.take().contains(&"StorageVolUpload"));
        assert!(fs::read(&drive).unwrap() == whole);
    }
    fs::remove_file(&drive).unwrap();
    assert!(machine.create(&*endpoint.driver(), MANY).await);
    assert!(fs::read(&drive).unwrap() == whole);
}
