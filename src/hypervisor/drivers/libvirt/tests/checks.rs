//! The checks before a machine is created.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capw_libvirtd::Daemon;

use super::between::{Answer, Between};
use super::rig::LibvirtEndpoint;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine, Requests};
use crate::hypervisor::drivers::libvirt::capabilities::tests::FULL;
use crate::hypervisor::drivers::libvirt::partitions::tests::{windows_by_bios, windows_by_uefi};
use crate::hypervisor::drivers::libvirt::xdr::Encoder;
use crate::hypervisor::wire::Fate;
use crate::hypervisor::{Driver, DriverError, ImageFirmware, Wanted};
use crate::vm::{Nic, SeedKind, StopMode, Thing, VmSpec};

/// The procedures of libvirt's protocol.
const SPACE: u32 = 87;
const CAPABILITIES: u32 = 342;
const DOWNLOAD: u32 = 209;
const INTERFACES: u32 = 284;

fn windows(endpoint: &LibvirtEndpoint) -> VmSpec {
    VmSpec { memory_mib: 256, uefi: true, secure_boot: true, tpm: true, ..endpoint.spec() }
}

#[tokio::test]
async fn a_host_is_asked_once_for_many_machines() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    for endpoint in [LibvirtEndpoint::new(&daemon), LibvirtEndpoint::with_copies(&daemon)] {
        let (driver, requests) = Requests::of(&endpoint);
        driver.describe().await.unwrap();
        assert!(requests.take().ends_with(&["ConnectGetDomainCapabilities"]));
        for _ in 0..5 {
            driver.check(&windows(&endpoint), SeedKind::Drive).await.expect("the daemon has all that Windows needs");
        }
        let once = ["StoragePoolListAllVolumes", "StorageVolGetXmlDesc", "StoragePoolGetInfo", "NodeGetMemoryStats"];
        assert_eq!(requests.take(), once);
    }
}

/// Whether a daemon has KVM depends on the test machine, so the daemon's answer about KVM is simulated.
#[tokio::test]
async fn a_host_that_runs_no_vm_as_it_should_answers_and_is_unfit_until_it_does() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    assert_eq!(endpoint.driver().describe().await.unwrap().unfit, None);
    const NO_KVM: &str = "invalid argument: the accel 'kvm' is not supported by '/usr/bin/qemu-system-x86_64' on this host";
    let is_fixed = Arc::new(AtomicBool::new(false));
    let fixed = is_fixed.clone();
    let between = Between::new(&daemon.socket(), move |_, called, _| match called {
        CAPABILITIES if !fixed.load(Ordering::Relaxed) => Answer::Refused(8, NO_KVM),
        _ => Answer::Real,
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    let unfit = driver.describe().await.unwrap().unfit.unwrap();
    for part in [between.socket().as_str(), NO_KVM, "/dev/kvm", "spec.libvirt.acceleration of the WindowsHypervisor to TCG"] {
        assert!(unfit.contains(part), "{part} is not in {unfit}");
    }
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, [], "its VMs can be looked after");
    is_fixed.store(true, Ordering::Relaxed);
    assert_eq!(driver.describe().await.unwrap().unfit, None);
}

/// The daemon has everything that Windows needs, so missing features are simulated.
#[tokio::test]
async fn what_a_host_lacks_is_told_before_anything_is_made() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    type Make = fn(&Arc<Daemon>) -> LibvirtEndpoint;
    type Script = fn(u32) -> Answer;
    let (linked, full): (Make, Make) = (LibvirtEndpoint::new, LibvirtEndpoint::with_copies);
    let cases: [(Make, Script, &str, &[&str]); 8] = [
        (linked, |called| played(called, "<value>efi</value>"), "invalid", &["has no UEFI for guests", "spec.firmware.type", "BIOS"]),
        (linked, |called| played(called, "<value>yes</value>"), "invalid", &["Secure Boot", "spec.firmware.secureBoot of the machine is true"]),
        (linked, |called| played(called, "<value>emulator</value>"), "invalid", &["swtpm", "spec.firmware.tpm of the machine is true"]),
        (
            linked,
            |called| {
                if called == CAPABILITIES {
                    Answer::Refused(8, "invalid argument: the accel 'kvm' is not supported by 'qemu' on this host")
                } else {
                    Answer::Real
                }
            },
            "invalid",
            &["/dev/kvm", "spec.libvirt.acceleration"],
        ),
        (full, |called| free(called, 1024), "capacity", &["storage pool pool-", "has 0 MiB free", "takes 1 MiB", "spec.libvirt.clone"]),
        (
            linked,
            |called| free(called, (1 << 30) - 1),
            "capacity",
            &["storage pool pool-", "has 1023 MiB free", "takes 1024 MiB", "remove machines", "virsh pool-refresh"],
        ),
        (linked, |called| free(called, 1 << 30), "", &[]),
        (full, |_| Answer::Real, "", &[]),
    ];
    for (make, script, class, words) in cases {
        let endpoint = make(&daemon);
        let between = Between::new(&daemon.socket(), move |_, called, _| script(called));
        let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
        let machine = Machine::new("lacks", windows(&endpoint));
        let step = machine.advance(&*driver).await;
        if words.is_empty() {
            assert!(step.is_ok(), "{step:?}");
            assert!(machine.create(&*driver, MANY).await && machine.delete(&*driver, StopMode::Hard, MANY).await);
            continue;
        }
        let error = step.unwrap_err();
        assert!(error.label() == class && words.iter().all(|word| error.to_string().contains(word)), "{words:?}: {}: {error}", error.label());
        assert_eq!(endpoint.count().await, 0);
    }
}

/// Answers with capabilities that lack a part.
fn played(called: u32, part: &str) -> Answer {
    if called == CAPABILITIES { Answer::Played(Encoder::default().text(&FULL.replace(part, ""))) } else { Answer::Real }
}

/// Answers for a pool with that many bytes free.
fn free(called: u32, bytes: u64) -> Answer {
    if called == SPACE { Answer::Played(Encoder::default().u32(2).u64(9 << 30).u64(9 << 20).u64(bytes)) } else { Answer::Real }
}

#[tokio::test]
async fn a_bridge_is_looked_for_where_the_daemon_lists_interfaces() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let spec = |name: &str| VmSpec { nics: vec![Nic { network: Some(name.into()), ..endpoint.spec().nics[0].clone() }], ..endpoint.spec() };
    let check = async |driver: Arc<dyn Driver>, name: &str| driver.check(&spec(name), SeedKind::Drive).await;
    check(endpoint.driver(), "bridge:lo").await.expect("the daemon lists it");
    let error = check(endpoint.driver(), "bridge:capw-none").await.unwrap_err();
    let DriverError::Missing { thing: Thing::Network, text } = &error else { panic!("{error:?}") };
    assert!(text.contains("has no bridge \"capw-none\"; its interfaces are ") && text.contains("spec.networks"), "{text}");
    let silent = |_: u32, called: u32, _: &[u8]| {
        if called == INTERFACES { Answer::Refused(3, "this function is not supported by the connection driver") } else { Answer::Real }
    };
    let between = Between::new(&daemon.socket(), silent);
    check(endpoint.at(between.socket(), Arc::new(|_| Fate::Pass)), "bridge:capw-none").await.expect("nobody knows");
}

#[tokio::test]
async fn a_system_disk_that_is_too_small_for_its_image_is_refused() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    daemon.virsh(["vol-create-as", &endpoint.pool, "large.qcow2", "40G", "--format", "qcow2"]);
    let driver = endpoint.driver();
    let check = async |gib| driver.check(&VmSpec { image: "large".into(), system_disk_gib: gib, ..endpoint.spec() }, SeedKind::Drive).await;
    assert_eq!((check(None).await, check(Some(40)).await), (Ok(()), Ok(())));
    let error = check(Some(39)).await.unwrap_err();
    assert!(
        matches!(&error, DriverError::Invalid(text) if text.contains("spec.systemDisk of the machine is 39Gi") && text.contains("40Gi")),
        "{error}"
    );
}

/// The disks of a Windows that was installed with each firmware, in files from QEMU's own program.
#[tokio::test]
async fn the_firmware_that_an_image_starts_by_is_read_where_that_is_allowed() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    for (name, disk) in [("uefi", windows_by_uefi()), ("bios", windows_by_bios())] {
        let [raw, qcow2] = ["raw", "qcow2"].map(|format| endpoint.file(&format!("{name}.{format}")));
        fs::write(&raw, disk).unwrap();
        let converted = Command::new("qemu-img").args(["convert", "-c", "-O", "qcow2"]).args([&raw, &qcow2]).status().unwrap();
        assert!(converted.success());
    }
    daemon.virsh(["pool-refresh", &endpoint.pool]);
    let spec = |image: &str, uefi| VmSpec { image: image.into(), uefi, ..endpoint.spec() };
    let driver = endpoint.driver();
    for (image, starts_by_uefi) in [("uefi.raw", true), ("uefi.qcow2", true), ("bios.raw", false), ("bios", false)] {
        let fits = driver.image_firmware(&spec(image, starts_by_uefi)).await.unwrap();
        assert!(matches!(&fits, ImageFirmware::Fits(text) if text.contains(image)), "{fits:?}");
        let differs = driver.image_firmware(&spec(image, !starts_by_uefi)).await.unwrap();
        assert!(matches!(&differs, ImageFirmware::Differs(text) if text.contains("set spec.firmware.type to")), "{differs:?}");
    }
    let refuse = |_: u32, called: u32, _: &[u8]| {
        if called == DOWNLOAD { Answer::Refused(88, "access denied: 'storage' denied 'storage-vol:data-read' access") } else { Answer::Real }
    };
    let between = Between::new(&daemon.socket(), refuse);
    let blind = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass)).image_firmware(&spec("uefi", true)).await.unwrap();
    assert!(matches!(&blind, ImageFirmware::NotLookedAt(text) if text.contains("org.libvirt.api.storage-vol.data-read")), "{blind:?}");
}
