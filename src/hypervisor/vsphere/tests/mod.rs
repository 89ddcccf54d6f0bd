//! The vSphere driver against the contract of every driver, at govmomi's simulator; and what only this one does.

mod behaviour;
mod scripted;
mod vcenter;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;

use self::vcenter::Vcenter;
use super::found::name_of;
use super::{Sessions, VsphereDriver};
use crate::api::hypervisor::Vsphere;
use crate::bootstrap::delivery::{SeedImage, guest_info};
use crate::hypervisor::Driver;
use crate::hypervisor::contract::{self, TestEndpoint};
use crate::hypervisor::observed::{EndpointSettings, ObservedDriver};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::vm::{MachineKey, SeedKind, VmSpec};

/// A folder of a vCenter.
struct VsphereEndpoint {
    vcenter: Arc<Vcenter>,
    folder: String,
}

impl VsphereEndpoint {
    fn new(vcenter: &Arc<Vcenter>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("folder-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        vcenter.ask(json!({"do": "folder", "name": folder}));
        Self { vcenter: vcenter.clone(), folder }
    }

    fn settings(&self) -> Vsphere {
        Vsphere {
            server: self.vcenter.server.clone(),
            datacenter: "DC0".into(),
            folder: Some(self.folder.clone()),
            resource_pool: "DC0_C0/Resources".into(),
            datastore: "LocalDS_0".into(),
            ..Vsphere::default()
        }
    }

    fn with(&self, settings: Vsphere, hook: WireHook) -> Arc<dyn Driver> {
        let driver = VsphereDriver::new(settings, &self.vcenter.login(), &Sessions::default(), Wire::new(hook)).unwrap();
        let settings = EndpointSettings { name: "lab/one".into(), most_calls: 32, ..EndpointSettings::default() };
        Arc::new(ObservedDriver::new(Arc::new(driver), settings, Arc::new(|_| ())))
    }

    fn machine(&self, key: &MachineKey) -> Option<vcenter::Machine> {
        self.vcenter.machines(&self.folder).into_iter().find(|machine| machine.name == name_of(key))
    }
}

/// The next endpoint has machines of the same names, and UUIDs are looked for in the whole vCenter.
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

    /// The simulator admits anything.
    fn small(&self) -> Option<Arc<dyn Driver>> {
        None
    }

    fn spec(&self) -> VmSpec {
        VmSpec { tpm: false, ..contract::spec() }
    }

    fn seed_kind(&self) -> SeedKind {
        SeedKind::GuestInfo
    }

    fn has_parts(&self) -> bool {
        false
    }

    async fn occupy(&self, key: &MachineKey) {
        self.vcenter.ask(json!({"do": "occupy", "folder": self.folder, "name": name_of(key), "uuid": key.vm.0}));
    }

    async fn half_made(&self, _: &MachineKey) {}

    async fn half_removed(&self, _: &MachineKey) {}

    async fn seed(&self, key: &MachineKey) -> Option<SeedImage> {
        let values = self.machine(key)?.values;
        let values = values.into_iter().filter(|(key, value)| guest_info::KEYS.contains(&key.as_str()) && !value.is_empty());
        Some(values.collect()).filter(|values: &std::collections::BTreeMap<_, _>| !values.is_empty()).map(SeedImage::GuestInfo)
    }

    async fn remove_behind_its_back(&self, key: &MachineKey) {
        self.vcenter.ask(json!({"do": "destroy", "folder": self.folder, "name": name_of(key)}));
    }

    async fn count(&self) -> usize {
        self.vcenter.machines(&self.folder).len()
    }
}

#[tokio::test]
async fn it_keeps_the_contract() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::all(|| VsphereEndpoint::new(&vcenter)).await;
}

#[tokio::test]
async fn any_request_may_be_lost() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| VsphereEndpoint::new(&vcenter)).await;
}
