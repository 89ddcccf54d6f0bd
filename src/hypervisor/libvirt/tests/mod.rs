//! Tests the libvirt driver with a real daemon and real QEMU VMs: the contract of every driver, and the behaviour of this driver alone.

mod addresses;
mod agent;
mod between;
mod checks;
mod clones;
mod disks;
mod events;
mod hardware;
mod logs;
mod recipe;
mod ssh;
mod starts;
mod tls;
mod told;
mod troubles;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use capw_libvirtd::{Daemon, Mode};

use super::LibvirtDriver;
use super::volumes::{Volumes, vm_of};
use crate::api::hypervisor::{Acceleration, CloneMode, Console, GuestWords, Libvirt};
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::contract::machine::{MANY, Machine, Requests};
use crate::hypervisor::contract::program::until;
use crate::hypervisor::contract::{self, TestEndpoint};
use crate::hypervisor::gates::EndpointGates;
use crate::hypervisor::login::Login;
use crate::hypervisor::observed::{EndpointSettings, ObservedDriver};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{GuestReport, Journal, MachineKey, Power, Present, StopMode, Thing, VmDisk, VmSpec};

const IMAGE: &str = "windows-server-2022.img";

/// A pool of a daemon.
struct LibvirtEndpoint {
    daemon: Arc<Daemon>,
    pool: String,
    directory: PathBuf,
    clone: CloneMode,
    words: GuestWords,
    console: Console,
}

impl LibvirtEndpoint {
    fn new(daemon: &Arc<Daemon>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let pool = format!("pool-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = daemon.pool(&pool, IMAGE);
        Self { daemon: daemon.clone(), pool, directory, clone: CloneMode::default(), words: GuestWords::default(), console: Console::default() }
    }

    /// Creates an endpoint whose VMs get copies of the image.
    fn with_copies(daemon: &Arc<Daemon>) -> Self {
        let mut endpoint = Self::new(daemon);
        endpoint.clone = CloneMode::Full;
        endpoint
    }

    fn at(&self, socket: impl AsRef<Path>, hook: WireHook) -> Arc<dyn Driver> {
        let settings = Libvirt {
            address: self.daemon.address_at(socket.as_ref()),
            pool: self.pool.clone(),
            acceleration: Acceleration::Tcg,
            clone: self.clone,
            words: self.words,
            console: self.console,
            ..Libvirt::default()
        };
        let driver = LibvirtDriver::new(settings, &Login::default(), Wire::new(hook)).unwrap();
        let settings = EndpointSettings { name: "lab/one".into(), ..EndpointSettings::default() };
        let gates = Arc::new(EndpointGates::new(driver.caps(), 32));
        Arc::new(ObservedDriver::new(Arc::new(driver), settings, gates, Arc::new(|_| ())))
    }

    fn file(&self, volume: &str) -> PathBuf {
        self.directory.join(volume)
    }

    fn files(&self) -> Vec<String> {
        fs::read_dir(&self.directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn make_volume(&self, name: &str) {
        self.daemon.virsh(["vol-create-as", &self.pool, name, "1M", "--format", if name.ends_with("qcow2") { "qcow2" } else { "raw" }]);
    }
}

/// Creates a driver that reaches a pool by another address, e.g. by TLS.
fn driver_at(address: String, pool: &str, login: &Login) -> Result<LibvirtDriver, DriverError> {
    let settings = Libvirt { address, pool: pool.into(), acceleration: Acceleration::Tcg, ..Libvirt::default() };
    LibvirtDriver::new(settings, login, Wire::new(Arc::new(|_| Fate::Pass)))
}

/// A revoked login fails with a message that names where the host admits logins; the next login continues with the same VM to its end.
async fn only_the_next_login_holds(old: &LibvirtDriver, next: &LibvirtDriver, machine: &Machine, words: &str) {
    // The first call may still use the connection that has ended.
    let _ = old.describe().await;
    for error in [old.describe().await.err(), old.observe(&machine.key, &Journal::new()).await.err()] {
        assert!(matches!(&error, Some(DriverError::Auth(text)) if text.contains(words)), "{error:?}");
    }
    assert_eq!(machine.present(next).await.power, Power::On);
    assert_eq!(machine.advance(next).await, Ok(DriverStep::Done));
    assert!(machine.delete(next, StopMode::Hard, MANY).await);
}

impl Drop for LibvirtEndpoint {
    fn drop(&mut self) {
        self.daemon.clear();
    }
}

#[async_trait]
impl TestEndpoint for LibvirtEndpoint {
    fn driver(&self) -> Arc<dyn Driver> {
        self.wired(Arc::new(|_| Fate::Pass))
    }

    fn wired(&self, hook: WireHook) -> Arc<dyn Driver> {
        self.at(self.daemon.socket(), hook)
    }

    fn unreachable(&self) -> Arc<dyn Driver> {
        self.at("/nonexistent/libvirt-sock", Arc::new(|_| Fate::Pass))
    }

    /// libvirt itself refuses no machines; CAPW counts the limits before it sends a request.
    fn small(&self) -> Option<Arc<dyn Driver>> {
        None
    }

    fn spec(&self) -> VmSpec {
        VmSpec { image: IMAGE.into(), cpus: 1, memory_mib: 32, uefi: false, secure_boot: false, tpm: false, ..contract::spec() }
    }

    async fn occupy(&self, key: &MachineKey) {
        let path = self.directory.with_extension("xml");
        let xml = format!(
            "<domain type='qemu'><name>{}</name><uuid>{}</uuid><memory unit='MiB'>32</memory><os><type arch='x86_64'>hvm</type></os></domain>",
            Volumes::of(key).vm(),
            key.vm
        );
        fs::write(&path, xml).unwrap();
        self.daemon.virsh(["define", path.to_str().unwrap()]);
    }

    async fn half_made(&self, key: &MachineKey) {
        self.make_volume(&Volumes::of(key).system());
    }

    async fn half_removed(&self, key: &MachineKey) {
        self.make_volume(&Volumes::of(key).drive());
    }

    async fn seed(&self, key: &MachineKey) -> Option<SeedImage> {
        fs::read(self.file(&Volumes::of(key).drive())).ok().map(SeedImage::Drive)
    }

    async fn remove_behind_its_back(&self, key: &MachineKey) {
        let names = Volumes::of(key);
        self.daemon.virsh(["destroy", names.vm()]);
        self.daemon.virsh(["undefine", names.vm()]);
        for name in self.files().iter().filter(|name| names.contain(name)) {
            self.daemon.virsh(["vol-delete", "--pool", &self.pool, name]);
        }
    }

    async fn count(&self) -> usize {
        let of_files = self.files().into_iter().filter(|name| name != IMAGE).map(|name| vm_of(&name).map_or(name.clone(), str::to_owned));
        self.daemon.domains().into_iter().chain(of_files).collect::<BTreeSet<_>>().len()
    }
}

#[tokio::test]
async fn it_keeps_the_contract() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    contract::all(|| LibvirtEndpoint::new(&daemon)).await;
}

/// Runs in system mode, as on a user's host, if the tests run as root.
#[tokio::test]
async fn it_is_proven() {
    let Some(daemon) = Daemon::start_system().or_else(Daemon::start).map(Arc::new) else { return };
    contract::proof::is_proven(&LibvirtEndpoint::new(&daemon)).await;
}

/// System mode is like a user's host: root, QEMU's own user, a network with DHCP, the daemon for logs, and file owners that libvirt sets.
#[tokio::test]
async fn it_keeps_the_contract_in_system_mode() {
    let Some(daemon) = Daemon::start_system().map(Arc::new) else { return };
    contract::all(|| LibvirtEndpoint::new(&daemon)).await;
}

/// A hundred lives of real VMs take minutes: `make test-libvirt`.
#[tokio::test]
#[ignore = "it takes minutes"]
async fn any_request_may_be_lost() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| LibvirtEndpoint::new(&daemon)).await;
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn it_keeps_the_contract_with_full_clones() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    contract::all(|| LibvirtEndpoint::with_copies(&daemon)).await;
}

/// Counts the requests of a whole life where they leave the driver, without the requests that connect.
#[tokio::test]
async fn a_life_takes_few_requests() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, requests) = Requests::of(&endpoint);
    let first = Machine::new("first", endpoint.spec());
    assert!(first.create(&*driver, 10).await, "the connection is open, image and networks are known");
    let machine = Machine::new("second", endpoint.spec());
    requests.take();
    assert!(machine.create(&*driver, 10).await);
    let create = requests.take();
    while machine.detach(&*driver).await.unwrap() != DriverStep::Done {}
    let detach = requests.take();
    // The listing follows the VM's log, as for every machine, so that the removal needs no refresh of the pool.
    driver.list(&Wanted { awaiting_reports: [machine.key.vm].into() }).await.unwrap();
    requests.take();
    assert!(machine.delete(&*driver, StopMode::Hard, 10).await);
    let delete = requests.take();
    let text = format!("create {create:?}\ndetach {detach:?}\ndelete {delete:?}");
    assert!(create.len() <= 10 && detach.len() <= 5 && delete.len() <= 8, "{text}");
    driver.list(&Wanted::default()).await.unwrap();
    requests.take();
    driver.list(&Wanted::default()).await.unwrap();
    assert_eq!(requests.take(), ["ConnectGetAllDomainStats", "StoragePoolListAllVolumes"], "at rest");
}

/// The next listing shows what a person does on the host.
#[tokio::test]
async fn what_happens_on_the_host_is_told() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("told", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let row = async || driver.list(&Wanted::default()).await.unwrap().rows.remove(0).present;
    let name = Volumes::of(&machine.key).vm().to_owned();
    daemon.virsh(["suspend", &name]);
    assert!(matches!(row().await, Present { power: Power::On, trouble: Some(why), .. } if why.contains("virsh resume")));
    daemon.virsh(["resume", &name]);
    assert_eq!((row().await.power, row().await.trouble), (Power::On, None));
    daemon.virsh(["destroy", &name]);
    assert_eq!(row().await.power, Power::Off);
    daemon.virsh(["undefine", &name]);
    let listing = driver.list(&Wanted::default()).await.unwrap();
    assert!(listing.rows.is_empty() && listing.leftovers.len() == 3, "{listing:?}");
}

/// The daemon restarts: VMs run on, and the driver continues. It refuses another daemon with a pool of that name.
#[tokio::test]
async fn a_daemon_that_restarts_is_the_same_and_another_one_is_not() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("stays", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let id = driver.describe().await.unwrap().id;
    daemon.stop();
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(error, DriverError::Unreachable(_)), "{error}");
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    assert_eq!((driver.describe().await.unwrap().id, machine.present(&*driver).await.power), (id, Power::On));
    daemon.virsh(["pool-destroy", &endpoint.pool]);
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if text.contains("pool-start")), "{error}");
    daemon.virsh(["pool-undefine", &endpoint.pool]);
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::Missing { thing: Thing::Placement, text } if text.contains("define the pool")), "{error}");
    daemon.pool(&endpoint.pool, IMAGE);
    let error = driver.describe().await.unwrap_err();
    assert!(matches!(&error, DriverError::EndpointChanged(text) if text.contains("status.endpointID")), "{error}");
    daemon.stop();
    // The first call sees that the connection has ended.
    assert!(driver.describe().await.is_err());
    daemon.launch();
    daemon.try_virsh(["pool-start", &endpoint.pool]);
    for error in [driver.describe().await.err(), driver.observe(&machine.key, &Journal::new()).await.err()] {
        assert!(matches!(&error, Some(DriverError::EndpointChanged(text)) if text.contains("another host")), "{error:?}");
    }
}

/// The driver reads the guest's serial output from the file that QEMU writes.
#[tokio::test]
async fn the_words_of_a_guest_are_read_to_the_last() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let endpoint = LibvirtEndpoint::new(&daemon);
    let (driver, machine) = (endpoint.driver(), Machine::new("talks", endpoint.spec()));
    assert!(machine.create(&*driver, 10).await);
    let log = endpoint.file(&Volumes::of(&machine.key).log());
    until("the guest says hello", || fs::read_to_string(&log).unwrap_or_default().contains("hello\r\n")).await;
    let wanted = Wanted { awaiting_reports: [machine.key.vm].into() };
    let report = async |wanted: &Wanted| driver.list(wanted).await.unwrap().rows.remove(0).present.report;
    assert_eq!(report(&wanted).await, None, "the firmware's words are no report");
    let said = |sequence| GuestReport { sequence, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "x".into() };
    let speak = |text: &str| fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(text.as_bytes()).unwrap();
    speak(&(said(1).line() + "\n" + &"noise ".repeat(6000) + "\n"));
    assert_eq!(report(&wanted).await, Some(said(1)));
    speak(&(said(2).line() + "\n"));
    assert_eq!(report(&Wanted::default()).await, Some(said(1)), "who is not asked for is not read");
    assert_eq!(report(&wanted).await, Some(said(2)));
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
