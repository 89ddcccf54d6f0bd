//! An endpoint for the tests of this driver: a folder of a vCenter that govmomi simulates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use serde_json::json;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::vcenter::{self, Vcenter};
use crate::api::hypervisor::Vsphere;
use crate::bootstrap::delivery::{SeedImage, guest_info};
use crate::hypervisor::Driver;
use crate::hypervisor::contract::{self, TestEndpoint};
use crate::hypervisor::drivers::vsphere::driver::VsphereDriver;
use crate::hypervisor::drivers::vsphere::found::name_of;
use crate::hypervisor::drivers::vsphere::mirror::Mirror;
use crate::hypervisor::drivers::vsphere::session::Sessions;
use crate::hypervisor::gates::EndpointGates;
use crate::hypervisor::observed::{EndpointSettings, ObservedDriver};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::vm::{MachineKey, SeedKind, VmSpec};

/// A folder of a vCenter.
pub struct VsphereEndpoint {
    vcenter: Arc<Vcenter>,
    pub folder: String,
    seed: SeedKind,
    /// Shared by all drivers, if the vCenter pushes changes.
    session: Option<Told>,
}

/// A session in which the vCenter reports changes in the folder, by requests that no test counts.
struct Told {
    sessions: Sessions,
    driver: VsphereDriver,
    _listener: AbortOnDropHandle<()>,
}

impl VsphereEndpoint {
    pub fn new(vcenter: &Arc<Vcenter>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("folder-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        vcenter.ask(json!({"do": "folder", "name": folder}));
        Self { vcenter: vcenter.clone(), folder, seed: SeedKind::GuestInfo, session: None }
    }

    /// An endpoint whose machines get their data on a CD.
    pub fn with_drive(vcenter: &Arc<Vcenter>) -> Self {
        let mut endpoint = Self::new(vcenter);
        endpoint.seed = SeedKind::Drive;
        endpoint
    }

    /// An endpoint whose changes are pushed, as in production.
    pub fn told(vcenter: &Arc<Vcenter>) -> Self {
        let mut endpoint = Self::new(vcenter);
        let sessions = Sessions::default();
        let pass = Wire::new(Arc::new(|_| Fate::Pass));
        let driver = VsphereDriver::new(endpoint.settings(), &vcenter.login(), &sessions, pass).unwrap();
        let mut hints = driver.hints().unwrap();
        let listener = AbortOnDropHandle::new(tokio::spawn(async move { while hints.next().await.is_some() {} }));
        let mut news = driver.client.mirror().news();
        tokio::task::block_in_place(|| {
            Handle::current().block_on(async {
                while !driver.client.mirror().is_live() {
                    news.changed().await.unwrap();
                }
            });
        });
        endpoint.session = Some(Told { sessions, driver, _listener: listener });
        endpoint
    }

    /// Waits until the cache fulfils the condition.
    pub async fn until(&self, is_so: impl Fn(&Mirror) -> bool) {
        let mirror = self.session.as_ref().unwrap().driver.client.mirror();
        let mut news = mirror.news();
        while !is_so(mirror) {
            news.changed().await.unwrap();
        }
    }

    pub fn settings(&self) -> Vsphere {
        Vsphere {
            server: self.vcenter.server.clone(),
            datacenter: "DC0".into(),
            folder: Some(self.folder.clone()),
            resource_pool: "DC0_C0/Resources".into(),
            datastore: "LocalDS_0".into(),
            ..Vsphere::default()
        }
    }

    pub fn with(&self, settings: Vsphere, hook: WireHook) -> Arc<dyn Driver> {
        let own = Sessions::default();
        let sessions = self.session.as_ref().map_or(&own, |told| &told.sessions);
        let driver = VsphereDriver::new(settings, &self.vcenter.login(), sessions, Wire::new(hook)).unwrap();
        let settings = EndpointSettings { name: "lab/one".into(), ..EndpointSettings::default() };
        let gates = Arc::new(EndpointGates::new(driver.caps(), 32));
        Arc::new(ObservedDriver::new(Arc::new(driver), settings, gates, Arc::new(|_| ())))
    }

    pub fn machine(&self, key: &MachineKey) -> Option<vcenter::Machine> {
        self.vcenter.machines(&self.folder).into_iter().find(|machine| machine.name == name_of(key))
    }
}

/// The next endpoint has machines of the same names, and a search for a UUID covers the whole vCenter.
impl Drop for VsphereEndpoint {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.vcenter.ask(json!({"do": "clear", "folder": self.folder}));
        }
    }
}

#[async_trait]
impl TestEndpoint for VsphereEndpoint {
    fn driver(&self) -> Arc<dyn Driver> {
        self.wired(Arc::new(|_| Fate::Pass))
    }

    fn wired(&self, hook: WireHook) -> Arc<dyn Driver> {
        self.with(self.settings(), hook)
    }

    fn unreachable(&self) -> Arc<dyn Driver> {
        self.with(Vsphere { server: "127.0.0.1:1".into(), ..self.settings() }, Arc::new(|_| Fate::Pass))
    }

    /// The simulator never refuses a VM.
    fn small(&self) -> Option<Arc<dyn Driver>> {
        None
    }

    fn spec(&self) -> VmSpec {
        VmSpec { tpm: false, ..contract::spec() }
    }

    fn seed_kind(&self) -> SeedKind {
        self.seed
    }

    fn has_parts(&self) -> bool {
        false
    }

    async fn occupy(&self, key: &MachineKey) {
        self.vcenter.ask(json!({"do": "occupy", "folder": self.folder, "name": name_of(key), "uuid": key.vm.0}));
        if let Some(told) = &self.session {
            let folder = told.driver.place().await.unwrap().folder;
            self.until(|mirror| mirror.named(&folder, &name_of(key)) != Some(None)).await;
        }
    }

    async fn half_made(&self, _: &MachineKey) {}

    async fn half_removed(&self, _: &MachineKey) {}

    async fn seed(&self, key: &MachineKey) -> Option<SeedImage> {
        let machine = self.machine(key)?;
        if let Some(drive) = machine.drives.iter().flatten().next() {
            return self.vcenter.file(drive).map(SeedImage::Drive);
        }
        let values = machine.values;
        let values = values.into_iter().filter(|(key, value)| guest_info::KEYS.contains(&key.as_str()) && !value.is_empty());
        Some(values.collect()).filter(|values: &std::collections::BTreeMap<_, _>| !values.is_empty()).map(SeedImage::GuestInfo)
    }

    async fn remove_behind_its_back(&self, key: &MachineKey) {
        self.vcenter.ask(json!({"do": "destroy", "folder": self.folder, "name": name_of(key)}));
        if self.session.is_some() {
            self.until(|mirror| mirror.find(key).is_none()).await;
        }
    }

    async fn count(&self) -> usize {
        self.vcenter.machines(&self.folder).len()
    }
}
