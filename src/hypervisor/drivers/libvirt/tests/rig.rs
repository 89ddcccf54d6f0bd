//! A pool of a real daemon as the endpoint of a driver.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use capw_libvirtd::Daemon;

use crate::api::hypervisor::{Acceleration, CloneMode, Console, GuestWords, Libvirt};
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::contract::machine::{MANY, Machine};
use crate::hypervisor::contract::{self, TestEndpoint};
use crate::hypervisor::drivers::libvirt::driver::LibvirtDriver;
use crate::hypervisor::drivers::libvirt::volumes::{Volumes, vm_of};
use crate::hypervisor::gates::EndpointGates;
use crate::hypervisor::login::Login;
use crate::hypervisor::observed::{EndpointSettings, ObservedDriver};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep};
use crate::vm::{Journal, MachineKey, Power, StopMode, VmSpec};

pub const IMAGE: &str = "windows-server-2022.img";

/// A pool of a daemon.
pub struct LibvirtEndpoint {
    pub daemon: Arc<Daemon>,
    pub pool: String,
    pub directory: PathBuf,
    pub clone: CloneMode,
    pub words: GuestWords,
    pub console: Console,
}

impl LibvirtEndpoint {
    pub fn new(daemon: &Arc<Daemon>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let pool = format!("pool-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = daemon.pool(&pool, IMAGE);
        Self { daemon: daemon.clone(), pool, directory, clone: CloneMode::default(), words: GuestWords::default(), console: Console::default() }
    }

    /// Creates an endpoint whose VMs get copies of the image.
    pub fn with_copies(daemon: &Arc<Daemon>) -> Self {
        let mut endpoint = Self::new(daemon);
        endpoint.clone = CloneMode::Full;
        endpoint
    }

    pub fn at(&self, socket: impl AsRef<Path>, hook: WireHook) -> Arc<dyn Driver> {
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

    pub fn file(&self, volume: &str) -> PathBuf {
        self.directory.join(volume)
    }

    pub fn files(&self) -> Vec<String> {
        fs::read_dir(&self.directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    pub fn make_volume(&self, name: &str) {
        self.daemon.virsh(["vol-create-as", &self.pool, name, "1M", "--format", if name.ends_with("qcow2") { "qcow2" } else { "raw" }]);
    }
}

/// Creates a driver that reaches a pool by another address, e.g. by TLS.
pub fn driver_at(address: String, pool: &str, login: &Login) -> Result<LibvirtDriver, DriverError> {
    let settings = Libvirt { address, pool: pool.into(), acceleration: Acceleration::Tcg, ..Libvirt::default() };
    LibvirtDriver::new(settings, login, Wire::new(Arc::new(|_| Fate::Pass)))
}

/// A revoked login fails with a message that names where the host admits logins; the next login continues with the same VM to its end.
pub async fn only_the_next_login_holds(old: &LibvirtDriver, next: &LibvirtDriver, machine: &Machine, words: &str) {
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
