//! What is looked at before a machine is made: all that would refuse it later, when much of it is made. What the host has is known for a
//! short time, so that many machines take few requests.

use super::capabilities::Capabilities;
use super::link::Session;
use super::volumes::Image;
use super::{LibvirtDriver, hardware};
use crate::api::hypervisor::CloneMode;
use crate::hypervisor::DriverError;
use crate::vm::VmSpec;

impl LibvirtDriver {
    pub(super) async fn check_machine(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        hardware::check(spec, &self.settings)?;
        let image = self.image(session, &spec.image).await?;
        check_size(spec, &image)?;
        self.check_networks(session, spec).await?;
        self.check_bridges(session, spec).await?;
        self.check_capabilities(session, spec).await?;
        self.check_space(session, spec, &image).await?;
        let left = self.memory.lock().await.has(session, spec.memory_mib).await?;
        left.map_err(|left| self.no_memory(spec, left))
    }

    /// Why the host runs no VM as the settings ask for it, in the daemon's words, with the remedy.
    pub(super) async fn unfit(&self, session: &Session) -> Result<Option<String>, DriverError> {
        match self.capabilities(session).await {
            Err(DriverError::Invalid(text)) => Ok(Some(format!("{} cannot run the VMs of machines: {text}", self.settings.address))),
            known => known.map(|_| None),
        }
    }

    async fn check_capabilities(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        let capabilities = self.capabilities(session).await?;
        match capabilities.lacks(spec, self.settings.acceleration) {
            Some(text) => {
                // What is installed meanwhile is seen at the next try.
                self.capabilities.lock().await.clear();
                Err(DriverError::Invalid(format!("{} {text}", self.settings.address)))
            }
            None => Ok(()),
        }
    }

    /// What the host can give to VMs. [`DriverError::Invalid`]: it runs none as the settings ask for them.
    async fn capabilities(&self, session: &Session) -> Result<Capabilities, DriverError> {
        let kind = hardware::domain_type(self.settings.acceleration);
        let mut known = self.capabilities.lock().await;
        if let Some(capabilities) = known.get(kind) {
            return Ok(capabilities);
        }
        let xml = session.client.domain_capabilities(kind).await?;
        let read = Capabilities::read(&xml);
        let read = read.ok_or_else(|| DriverError::Transient(format!("the capabilities of {} cannot be read", self.settings.address)))?;
        known.put(kind, read.clone());
        Ok(read)
    }

    /// Refuses a machine whose disk is not even as large as its first content. How much guests will write is not known.
    async fn check_space(&self, session: &Session, spec: &VmSpec, image: &Image) -> Result<(), DriverError> {
        if self.settings.clone != CloneMode::Full {
            return Ok(());
        }
        let mut space = self.space.lock().await;
        let free = match space.get(&session.pool.name) {
            Some(free) => free,
            None => {
                let free = session.client.free_space(&session.pool).await?;
                space.put(&session.pool.name, free);
                free
            }
        };
        if free >= image.allocated {
            return Ok(());
        }
        space.clear();
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        Err(DriverError::Capacity(format!(
            "storage pool {} on {} has {} MiB free, and a copy of image {:?} takes {} MiB: remove machines, add disk space to the pool (then virsh pool-refresh {}), or set spec.libvirt.clone of the WindowsHypervisor to Linked",
            session.pool.name,
            self.settings.address,
            free >> 20,
            spec.image,
            mebibytes(image.allocated),
            session.pool.name
        )))
    }

    pub(super) fn no_memory(&self, spec: &VmSpec, left_mib: u64) -> DriverError {
        DriverError::Capacity(format!(
            "{} has {left_mib} MiB of memory left, and the machine asks for {} MiB: remove machines, or add memory to the host; spec.limits.memory of the WindowsHypervisor refuses machines before the host does",
            self.settings.address, spec.memory_mib
        ))
    }
}

/// Refuses a system disk that its image does not fit into.
pub fn check_size(spec: &VmSpec, image: &Image) -> Result<(), DriverError> {
    let smallest = image.bytes.div_ceil(1 << 30);
    match spec.system_disk_gib {
        Some(gib) if gib < smallest => Err(DriverError::Invalid(format!(
            "spec.systemDisk of the machine is {gib}Gi, and image {:?} needs {smallest}Gi: raise spec.systemDisk, or leave it out for the image's own size",
            spec.image
        ))),
        _ => Ok(()),
    }
}
