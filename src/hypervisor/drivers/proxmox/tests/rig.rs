//! An endpoint for the tests of this driver: a cluster that fakepve simulates.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::cluster::{Cluster, Vm};
use crate::api::hypervisor::Proxmox;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::contract::machine::Machine;
use crate::hypervisor::contract::{self, TestEndpoint};
use crate::hypervisor::drivers::proxmox::driver::ProxmoxDriver;
use crate::hypervisor::drivers::proxmox::names::{image_of, name_of};
use crate::hypervisor::gates::EndpointGates;
use crate::hypervisor::observed::{EndpointSettings, ObservedDriver};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::hypervisor::{Driver, DriverError};
use crate::vm::{MachineKey, VmSpec};

/// The most calls until an operation is done.
pub const STEPS: usize = 10;

/// A cluster without VMs.
pub struct ProxmoxEndpoint {
    pub cluster: Arc<Cluster>,
}

impl ProxmoxEndpoint {
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        cluster.tell("pve.reset()");
        Self { cluster: cluster.clone() }
    }

    pub fn settings(&self) -> Proxmox {
        Proxmox {
            servers: vec![self.cluster.server.clone()],
            nodes: vec!["pve1".into(), "pve2".into()],
            iso_storage: "isos".into(),
            pool: Some("capw".into()),
            ..Proxmox::default()
        }
    }

    pub fn with(&self, settings: Proxmox, hook: WireHook) -> Arc<dyn Driver> {
        let driver = ProxmoxDriver::new(settings, &self.cluster.login(), Wire::new(hook)).unwrap();
        let settings = EndpointSettings { name: "lab/one".into(), ..EndpointSettings::default() };
        let gates = Arc::new(EndpointGates::new(driver.caps(), 32));
        Arc::new(ObservedDriver::new(Arc::new(driver), settings, gates, Arc::new(|_| ())))
    }

    pub fn vm(&self, key: &MachineKey) -> Option<Vm> {
        self.cluster.vms().into_iter().find(|vm| vm.name == name_of(key))
    }
}

#[async_trait]
impl TestEndpoint for ProxmoxEndpoint {
    fn driver(&self) -> Arc<dyn Driver> {
        self.wired(Arc::new(|_| Fate::Pass))
    }

    fn wired(&self, hook: WireHook) -> Arc<dyn Driver> {
        self.with(self.settings(), hook)
    }

    fn unreachable(&self) -> Arc<dyn Driver> {
        self.with(Proxmox { servers: vec!["127.0.0.1:1".into()], ..self.settings() }, Arc::new(|_| Fate::Pass))
    }

    /// Proxmox VE itself refuses no machines; CAPW counts the limits before it sends a request.
    fn small(&self) -> Option<Arc<dyn Driver>> {
        None
    }

    fn spec(&self) -> VmSpec {
        contract::spec()
    }

    async fn occupy(&self, key: &MachineKey) {
        self.cluster.tell(&format!("pve.add_vm(500, {:?}) and None", name_of(key)));
    }

    async fn half_made(&self, key: &MachineKey) {
        self.cluster.tell(&format!("pve.store_file('isos', {:?}, 1)", image_of(key.vm)));
    }

    async fn half_removed(&self, key: &MachineKey) {
        self.half_made(key).await;
    }

    async fn seed(&self, key: &MachineKey) -> Option<SeedImage> {
        let content: Option<String> = self.cluster.ask(&format!("pve.drive('isos:{}')", image_of(key.vm)));
        content.map(|content| SeedImage::Drive(STANDARD.decode(content).unwrap()))
    }

    async fn remove_behind_its_back(&self, key: &MachineKey) {
        self.cluster.tell(&format!("pve.remove({:?})", name_of(key)));
    }

    async fn count(&self) -> usize {
        let digits = |text: &str| text.rsplit_once('-').map(|(_, digits)| digits.to_owned()).unwrap();
        let of_vms = self.cluster.vms().into_iter().map(|vm| digits(&vm.name));
        let files: Vec<String> = self.cluster.ask("pve.files()");
        let of_files = files.into_iter().map(|file| file.strip_prefix("isos:capw-").unwrap()[..8].to_owned());
        of_vms.chain(of_files).collect::<BTreeSet<_>>().len()
    }
}

pub fn endpoint() -> Option<ProxmoxEndpoint> {
    Cluster::start().map(|cluster| ProxmoxEndpoint::new(&Arc::new(cluster)))
}

/// Advances until the first failure.
pub async fn failure(machine: &Machine, driver: &dyn Driver) -> DriverError {
    for _ in 0..STEPS {
        if let Err(error) = machine.advance(driver).await {
            return error;
        }
    }
    panic!("it does not fail");
}
