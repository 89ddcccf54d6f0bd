//! The virtual hardware, with a real QEMU.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use capw_libvirtd::{Daemon, Mode};

use super::rig::LibvirtEndpoint;
use crate::api::hypervisor::Console;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::{DriverError, Wanted};
use crate::vm::{StopMode, VmDisk, VmSpec};

/// The number of a VM's processors does not depend on the host's number.
#[tokio::test]
async fn seventy_processors_a_clock_of_no_zone_and_a_screen_by_choice() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    for console in [Console::None, Console::Vnc] {
        let mut endpoint = LibvirtEndpoint::new(&daemon);
        endpoint.console = console;
        let (driver, machine) = (endpoint.driver(), Machine::new("large", VmSpec { cpus: 70, memory_mib: 128, ..endpoint.spec() }));
        assert!(machine.create(&*driver, MANY).await);
        let name = Volumes::of(&machine.key).vm().to_owned();
        let definition = daemon.virsh(["dumpxml", &name]);
        for part in ["<clock offset='utc'>", "sockets='2'", "cores='35'"] {
            assert!(definition.contains(part), "{part} is not in\n{definition}");
        }
        let display = daemon.try_virsh(["vncdisplay", &name]);
        let display = String::from_utf8(display.stdout).unwrap();
        assert_eq!(display.trim().starts_with("127.0.0.1:"), console == Console::Vnc, "{display}");
        assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows[0].cpus, 70);
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    }
}

#[tokio::test]
async fn more_processors_than_qemu_has_are_refused_before_anything_is_made() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("larger", VmSpec { cpus: 256, ..endpoint.spec() }));
    let error = machine.advance(&*driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Invalid(text) if text.contains("spec.cpus is 256")), "{error}");
    assert_eq!(endpoint.count().await, 0);
}

#[tokio::test]
async fn a_machine_as_windows_needs_it_starts_and_leaves_nothing() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    starts_and_leaves_nothing(&daemon).await;
}

#[tokio::test]
async fn a_machine_as_windows_needs_it_leaves_nothing_in_system_mode() {
    let Some(daemon) = Daemon::start_system().map(Arc::new) else { return };
    starts_and_leaves_nothing(&daemon).await;
}

/// A VM with UEFI, Secure Boot, a TPM and a second disk: the daemon accepts and starts it, and later removes everything it created for it.
async fn starts_and_leaves_nothing(daemon: &Arc<Daemon>) {
    let endpoint = LibvirtEndpoint::new(daemon);
    let driver = endpoint.driver();
    let disks = vec![VmDisk { name: "data".into(), gib: 1 }];
    let windows = VmSpec { memory_mib: 256, uefi: true, secure_boot: true, tpm: true, system_disk_gib: Some(2), disks, ..endpoint.spec() };
    let machine = Machine::new("windows", windows);
    assert!(machine.create(&*driver, 10).await);
    let name = Volumes::of(&machine.key).vm().to_owned();
    let (definition, disk) = (daemon.virsh(["dumpxml", &name]), daemon.virsh(["domblkinfo", &name, "vda"]));
    for part in ["secure='yes'", "<tpm model='tpm-crb'>", "<nvram", "<mac address='02:00:00:00:00:01'/>", "dev='vdb'"] {
        assert!(definition.contains(part), "{part} is not in\n{definition}");
    }
    assert!(disk.contains(&(2_u64 << 30).to_string()), "{disk}");
    // In system mode libvirt gives a VM's disks to QEMU's own user while it runs.
    let owner = fs::metadata(endpoint.file(&Volumes::of(&machine.key).system())).unwrap().uid();
    assert!(daemon.mode() == Mode::Session || owner != 0, "QEMU runs as root");
    // The files of the VM's firmware variables carry its name, the files of its TPM carry its UUID.
    let left = || [daemon.files_of(&name), daemon.files_of(&machine.key.vm.to_string())].concat();
    assert!(left().iter().any(|path| path.ends_with("tpm2-00.permall")), "{:?}", left());
    assert!(machine.delete(&*driver, StopMode::Hard, 10).await);
    assert_eq!(left(), Vec::<PathBuf>::new());
    assert_eq!(endpoint.count().await, 0);
}
