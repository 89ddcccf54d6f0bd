//! The names of a VM's disks: AppArmor lets QEMU open them, and the names of earlier versions still work.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use capw_libvirtd::Daemon;

use super::rig::{IMAGE, LibvirtEndpoint};
use crate::api::hypervisor::CloneMode;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::contract::program::until;
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::{DriverStep, Wanted};
use crate::vm::{MachineKey, StopMode, VmDisk, VmSpec};

/// The program that writes the rules of AppArmor for a VM from its definition. It needs no AppArmor in the kernel.
const JUDGE: &str = "/usr/lib/libvirt/virt-aa-helper";

/// Returns the rules for a VM; `None`, with a message, if the program is missing.
#[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
fn rules(key: &MachineKey, definition: &str) -> Option<String> {
    if !Path::new(JUDGE).exists() {
        assert!(std::env::var_os("CI").is_none(), "missing: {JUDGE}");
        eprintln!("NOT RUN: {JUDGE} must be installed (libvirt-daemon-system)");
        return None;
    }
    let mut judge = Command::new(JUDGE);
    judge.args(["--dryrun", "-r", "-u"]).arg(format!("libvirt-{}", key.vm)).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut judge = judge.spawn().unwrap();
    judge.stdin.take().unwrap().write_all(definition.as_bytes()).unwrap();
    let output = judge.wait_with_output().unwrap();
    assert!(output.status.success(), "{definition}");
    // A dry run writes the rules to stderr, like its warnings.
    Some(String::from_utf8(output.stderr).unwrap())
}

/// Creates an image over the image that guests boot from.
fn image_over(endpoint: &LibvirtEndpoint) -> &'static str {
    const OVER: &str = "over.qcow2";
    let [over, base] = [OVER, IMAGE].map(|name| endpoint.file(name));
    let made = endpoint.daemon.command("qemu-img").args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(base).arg(over).status();
    assert!(made.unwrap().success());
    endpoint.daemon.virsh(["pool-refresh", &endpoint.pool]);
    OVER
}

/// AppArmor knows no pools: it lets QEMU open the files that the definition names.
#[tokio::test]
async fn apparmor_lets_qemu_open_every_file_of_a_vm() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    for endpoint in [LibvirtEndpoint::new(&daemon), LibvirtEndpoint::with_copies(&daemon)] {
        let image = image_over(&endpoint);
        let disks = vec![VmDisk { name: "data".into(), gib: 1 }];
        let (driver, machine) = (endpoint.driver(), Machine::new("rules", VmSpec { image: image.into(), disks, ..endpoint.spec() }));
        assert!(machine.create(&*driver, MANY).await);
        let names = Volumes::of(&machine.key);
        let definition = daemon.virsh(["dumpxml", "--inactive", names.vm()]);
        // The program gets the definition as libvirt reads it before a start: it does not follow files that the definition does not name.
        let Some(rules) = rules(&machine.key, &definition) else { return };
        let rule = |volume: &str, rights: &str| format!("\"{}\" {rights},", endpoint.file(volume).display());
        let shared = endpoint.clone != CloneMode::Full;
        let mut wanted = vec![rule(&names.system(), "rwk"), rule(&names.disk("data"), "rwk"), rule(&names.drive(), "rk")];
        wanted.extend([image, IMAGE].into_iter().filter(|_| shared).map(|name| rule(name, "rk")));
        assert!(wanted.iter().all(|rule| rules.contains(rule)), "{wanted:#?} are not all in\n{rules}");
        assert!(definition.contains("<backingStore/>"), "nothing is looked for in the files\n{definition}");
        let log = endpoint.file(&names.log());
        until("the guest says hello", || fs::read_to_string(&log).unwrap_or_default().contains("hello\r\n")).await;
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    }
}

/// Earlier versions of CAPW named disks by pool and volume.
#[tokio::test]
async fn a_vm_whose_disks_are_named_by_pool_is_listed_and_removed() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("earlier", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    let names = Volumes::of(&machine.key);
    daemon.virsh(["destroy", names.vm()]);
    let mut definition = daemon.virsh(["dumpxml", "--inactive", names.vm()]).replace("<disk type='file'", "<disk type='volume'");
    for volume in [names.system(), names.drive()] {
        let by_file = format!("<source file='{}'/>", endpoint.file(&volume).display());
        assert!(definition.contains(&by_file), "{definition}");
        definition = definition.replace(&by_file, &format!("<source pool='{}' volume='{volume}'/>", endpoint.pool));
    }
    let path = endpoint.directory.with_extension("xml");
    fs::write(&path, definition).unwrap();
    daemon.virsh(["define", path.to_str().unwrap()]);
    // The driver of a process that has not created the VM.
    let driver = endpoint.driver();
    let rows = async || driver.list(&Wanted::default()).await.unwrap().rows;
    assert_eq!(rows().await.len(), 1);
    assert!(machine.create(&*driver, MANY).await);
    while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
    assert!(!endpoint.files().contains(&names.drive()));
    assert_eq!(rows().await.len(), 1);
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(endpoint.count().await, 0);
}
