//! Faults on a host: each error names the cause and the remedy, and nothing is released until it is proven to be deleted.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use capw_libvirtd::Daemon;
use capw_patience::within;

use super::between::{Answer, Between};
use super::rig::{IMAGE, LibvirtEndpoint};
use super::told::DEADLINE;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::drivers::libvirt::xdr::Encoder;
use crate::hypervisor::wire::Fate;
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{Journal, Nic, Observed, Power, StopMode, Thing, VmDisk, VmSpec};

/// Advances until the first error.
async fn failure(machine: &Machine, driver: &dyn Driver) -> DriverError {
    for _ in 0..MANY {
        match machine.advance(driver).await {
            Ok(DriverStep::Done) => break,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
    panic!("{:?} runs", machine.key);
}

fn is_told(error: &DriverError, class: &str, words: &[&str]) -> bool {
    error.label() == class && words.iter().all(|word| error.to_string().contains(word))
}

#[tokio::test]
async fn what_a_machine_asks_for_and_a_host_has_not_is_told_with_the_remedy() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let with_network = |name: &str, spec: VmSpec| VmSpec { nics: vec![Nic { network: Some(name.into()), ..spec.nics[0].clone() }], ..spec };
    type Change<'a> = &'a dyn Fn(VmSpec) -> VmSpec;
    let cases: [(&str, Change, &str, &[&str]); 4] = [
        ("memory", &|spec| VmSpec { memory_mib: 900 << 10, ..spec }, "capacity", &["921600 MiB", "spec.limits.memory"]),
        ("network", &|spec| with_network("vlan-9", spec), "missing", &["vlan-9", "spec.networks"]),
        ("bridge", &|spec| with_network("bridge:capw-none", spec), "missing", &["bridge"]),
        ("disk", &|spec| VmSpec { image: "windows-11".into(), ..spec }, "missing", &["windows-11", IMAGE, "vol-upload"]),
    ];
    for (name, change, class, words) in cases {
        let endpoint = LibvirtEndpoint::new(&daemon);
        let (driver, machine) = (endpoint.driver(), Machine::new(name, change(endpoint.spec())));
        let error = failure(&machine, &*driver).await;
        assert!(is_told(&error, class, words), "{name}: {}: {error}", error.label());
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await && endpoint.count().await == 0, "{name}");
    }
}

#[tokio::test]
async fn an_image_whose_file_is_gone_is_told_before_and_after_disks_are_made_over_it() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("over", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    daemon.virsh(["destroy", Volumes::of(&machine.key).vm()]);
    let image = fs::read(endpoint.file(IMAGE)).unwrap();
    fs::remove_file(endpoint.file(IMAGE)).unwrap();
    for (driver, machine) in
        [(&driver, &machine), (&driver, &Machine::new("known", endpoint.spec())), (&endpoint.driver(), &Machine::new("asked", endpoint.spec()))]
    {
        let error = failure(machine, &**driver).await;
        assert!(is_told(&error, "missing", &[IMAGE, "pool-refresh"]), "{}: {error}", error.label());
    }
    fs::write(endpoint.file(IMAGE), image).unwrap();
    assert!(machine.create(&*driver, MANY).await, "with the file back it goes on");
}

#[tokio::test]
async fn a_pool_that_is_not_active_is_told_and_proves_no_absence() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("kept", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    let gone = Machine::new("never-made", endpoint.spec());
    daemon.virsh(["pool-destroy", &endpoint.pool]);
    let (journal, seen) = (Journal::new(), Observed::Absent);
    for error in [
        driver.describe().await.err(),
        endpoint.driver().check(&gone.spec, gone.seed.kind()).await.err(),
        driver.list(&Wanted::default()).await.err(),
        driver.observe(&gone.key, &journal).await.err(),
        driver.advance(&gone.key, &gone.spec, &gone.seed, &journal, &seen).await.err(),
        driver.retire(&gone.key, StopMode::Hard, &journal, &seen).await.err(),
    ] {
        let error = error.unwrap();
        assert!(matches!(error, DriverError::Missing { thing: Thing::Placement, .. }) && error.to_string().contains("pool-start"), "{error}");
    }
    assert_eq!(machine.present(&*driver).await.power, Power::On, "the VM runs on, and its definition says so");
    daemon.virsh(["pool-start", &endpoint.pool]);
    assert_eq!(machine.present(&*driver).await.power, Power::On);
}

/// A daemon without root rights has no access control (polkit) and no read-only socket: their answers are simulated.
#[tokio::test]
async fn rights_that_are_taken_away_are_told_and_nothing_is_released() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machine = Machine::new("kept", endpoint.spec());
    assert!(machine.create(&*endpoint.driver(), MANY).await);
    const DEFINITION: u32 = 14;
    const DESTROY: u32 = 234;
    for (procedure, words) in [
        (DEFINITION, "access denied: 'QEMU' denied 'domain:read' access"),
        (DESTROY, "operation forbidden: read only access prevents virDomainDestroyFlags"),
    ] {
        let between = Between::new(&daemon.socket(), move |_, called, _| if called == procedure { Answer::Refused(88, words) } else { Answer::Real });
        let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
        let error = machine.retire(&*driver, StopMode::Hard).await.unwrap_err();
        assert!(is_told(&error, "denied", &[words, "polkit"]), "{error}");
        assert_eq!(machine.present(&*endpoint.driver()).await.power, Power::On);
    }
}

/// The request for a volume by name, which polkit refuses; a list silently omits the volume.
const VOLUME_BY_NAME: u32 = 95;
const LIST_OF_DOMAINS: u32 = 344;
const LIST_OF_VOLUMES: u32 = 282;
const HIDDEN: Answer = Answer::Refused(88, "access denied: 'storage' denied 'storage-vol:getattr' access");

/// Builds a daemon's list of these volumes of a pool.
fn listed(pool: &str, volumes: &[String]) -> Answer {
    let count = u32::try_from(volumes.len()).unwrap();
    let volumes = volumes.iter().fold(Encoder::default().u32(count), |list, name| list.text(pool).text(name).text(&format!("/pool/{name}")));
    Answer::Played(volumes.u32(count))
}

#[tokio::test]
async fn volumes_that_polkit_hides_are_not_taken_for_gone() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let machine = Machine::new("half", endpoint.spec());
    let between = Between::new(&daemon.socket(), |_, called, _| match called {
        LIST_OF_VOLUMES => listed("pool", &[]),
        VOLUME_BY_NAME => HIDDEN,
        _ => Answer::Real,
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    assert_eq!(machine.see(&*driver).await, Observed::Absent, "nothing is listed");
    let error = driver.confirm_absence(&machine.key).await.unwrap_err();
    assert!(is_told(&error, "denied", &["org.libvirt.api.storage-vol.getattr", "/etc/polkit-1/rules.d"]), "{error}");
    // The whole VM is hidden, with its volumes.
    assert!(machine.create(&*endpoint.driver(), MANY).await);
    let between = Between::new(&daemon.socket(), |_, called, _| match called {
        LIST_OF_DOMAINS => Answer::Played(Encoder::default().u32(0)),
        LIST_OF_VOLUMES => listed("pool", &[]),
        _ => Answer::Real,
    });
    let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
    assert_eq!(machine.see(&*driver).await, Observed::Absent, "nothing is listed");
    let error = driver.confirm_absence(&machine.key).await.unwrap_err();
    assert!(is_told(&error, "transient", &["domain", "was not among the domains"]), "{error}");
    assert!(machine.delete(&*endpoint.driver(), StopMode::Hard, MANY).await);
    // With all rights, the absence of the machine is confirmed, and a volume that a list has missed is found.
    let driver = endpoint.driver();
    assert_eq!(driver.confirm_absence(&machine.key).await, Ok(()));
    for volume in [Volumes::of(&machine.key).system(), Volumes::of(&machine.key).drive(), Volumes::of(&machine.key).log()] {
        endpoint.make_volume(&volume);
        let error = driver.confirm_absence(&machine.key).await.unwrap_err();
        assert!(is_told(&error, "transient", &[&volume, "was not among its volumes"]), "{error}");
        daemon.virsh(["vol-delete", "--pool", &endpoint.pool, &volume]);
    }
}

/// A rule of polkit may name single volumes.
#[tokio::test]
async fn a_domain_stays_as_long_as_one_of_its_volumes_is_hidden() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let disks = vec![VmDisk { name: "data".into(), gib: 1 }];
    let machine = Machine::new("whole", VmSpec { disks, ..endpoint.spec() });
    assert!(machine.create(&*endpoint.driver(), MANY).await);
    let names = Volumes::of(&machine.key);
    let all = [names.system(), names.disk("data"), names.drive(), names.log()];
    for hidden in &all {
        let (shown, pool): (Vec<String>, _) = (all.iter().filter(|name| *name != hidden).cloned().collect(), endpoint.pool.clone());
        let between = Between::new(&daemon.socket(), move |_, called, _| match called {
            LIST_OF_VOLUMES => listed(&pool, &shown),
            VOLUME_BY_NAME => HIDDEN,
            _ => Answer::Real,
        });
        let driver = endpoint.at(between.socket(), Arc::new(|_| Fate::Pass));
        // The first pass may cut the power of the VM.
        let error = loop {
            if let Err(error) = machine.retire(&*driver, StopMode::Hard).await {
                break error;
            }
        };
        assert!(is_told(&error, "denied", &["org.libvirt.api.storage-vol.getattr"]), "{hidden}: {error}");
        assert!(all.iter().all(|name| endpoint.file(name).exists()) && daemon.domains().len() == 1, "{hidden}");
    }
    assert!(machine.delete(&*endpoint.driver(), StopMode::Hard, MANY).await && endpoint.count().await == 0);
}

/// A small file system, which is unmounted on drop.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    /// Mounts the file system; `None`, with a message, if this process may not mount.
    #[allow(clippy::disallowed_methods, reason = "in CI a missing judge is an error")]
    fn mount(path: &'a Path, mebibytes: u32) -> Option<Self> {
        let options = format!("size={mebibytes}m,mode=777");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        assert!(std::env::var_os("CI").is_none(), "this process may not mount: it must be root");
        eprintln!("NOT RUN: a full disk needs a file system of its own, and this process may not mount one");
        None
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// Fills that many bytes with another file, or all free space.
fn fill(path: &Path, bytes: u64) {
    let filled = io::copy(&mut io::repeat(0).take(bytes), &mut fs::File::create(path).unwrap());
    assert!(filled.as_ref().err().is_none_or(|error| error.kind() == io::ErrorKind::StorageFull), "{filled:?}");
}

#[tokio::test]
async fn a_full_disk_stops_a_vm_and_refuses_another_and_both_are_told() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let Some(_small) = Small::mount(&endpoint.directory, 1 << 10 | 8) else { return };
    fs::write(endpoint.file(IMAGE), capw_libvirtd::writer(64 << 10)).unwrap();
    daemon.virsh(["pool-refresh", &endpoint.pool]);
    let (driver, machine) = (endpoint.driver(), Machine::new("writer", VmSpec { system_disk_gib: Some(1), ..endpoint.spec() }));
    driver.check(&machine.spec, machine.seed.kind()).await.expect("there is room");
    assert!(machine.create(&*driver, MANY).await);
    fill(&endpoint.file("other"), 1 << 30);
    let trouble = loop {
        let present = driver.list(&Wanted::default()).await.unwrap().rows.remove(0).present;
        assert_eq!(present.power, Power::On);
        if let Some(trouble) = present.trouble {
            break trouble;
        }
        // The guest writes slowly.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(trouble.contains("storage") && trouble.contains("virsh resume"), "{trouble}");
    let error = failure(&Machine::new("late", endpoint.spec()), &*driver).await;
    assert!(is_told(&error, "capacity", &["No space left on device", "disk space"]), "{}: {error}", error.label());
    daemon.virsh(["pool-refresh", &endpoint.pool]);
    let late = Machine::new("later", endpoint.spec());
    let error = endpoint.driver().check(&late.spec, late.seed.kind()).await.expect_err("there is no room");
    assert!(is_told(&error, "capacity", &["MiB free", "disk space"]), "{}: {error}", error.label());
    assert!(matches!(machine.see(&*driver).await, Observed::Present(_)));
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await, "a VM that is paused can be removed");
}

/// The daemon accepts connections and answers nothing: to a connected caller, to a caller that waits for the connection, and to a new caller.
#[tokio::test]
async fn a_daemon_that_hangs_is_told_and_proves_no_absence() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("waits", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    daemon.freeze();
    let new = endpoint.driver();
    let all =
        async { tokio::join!(driver.describe(), machine.retire(&*driver, StopMode::Hard), new.describe(), machine.retire(&*new, StopMode::Hard)) };
    let (connected, retired, first, second) = within("a daemon that hangs is given up", DEADLINE, all).await;
    for error in [connected.err(), retired.err(), first.err(), second.err()] {
        let error = error.expect("nothing can be known");
        assert!(is_told(&error, "unreachable", &["has stopped answering", "systemctl restart libvirtd"]), "{}: {error}", error.label());
    }
    daemon.thaw();
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await && endpoint.count().await == 0);
}
