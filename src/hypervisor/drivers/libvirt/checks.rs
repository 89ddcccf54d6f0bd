//! The checks before a machine is created: they find what would refuse it later, when much of it exists. The facts about the host are
//! cached for a short time, so that many machines take few requests.

use super::capabilities::Capabilities;
use super::driver::LibvirtDriver;
use super::hardware;
use super::link::Session;
use super::volumes::Image;
use crate::api::hypervisor::CloneMode;
use crate::hypervisor::DriverError;
use crate::vm::VmSpec;

/// The bytes that a pool must have free for a disk over an image and the drive: the first boot of Windows writes more.
const SMALLEST_OVERLAY: u64 = 1 << 30;

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

    /// Returns why the host runs no VM as the settings require, with the daemon's message and the remedy.
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
                // The cache is cleared so that the next try sees newly installed software.
                self.capabilities.lock().await.clear();
                Err(DriverError::Invalid(format!("{} {text}", self.settings.address)))
            }
            None => Ok(()),
        }
    }

    /// Returns the host's capabilities. [`DriverError::Invalid`]: the host runs no VM as the settings require.
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

    /// Refuses a machine if the pool has no room for its start. How much guests will write is unknown.
    async fn check_space(&self, session: &Session, spec: &VmSpec, image: &Image) -> Result<(), DriverError> {
        let (what, needed, or_else) = match self.settings.clone {
            CloneMode::Full => ("a copy of", image.allocated, ", or set spec.libvirt.clone of the WindowsHypervisor to Linked"),
            CloneMode::Auto | CloneMode::Linked => ("a configuration drive and a disk over", SMALLEST_OVERLAY, ""),
        };
        let pool = &session.pool.name;
        let mut space = self.space.lock().await;
        let free = match space.get(pool) {
            Some(free) => free,
            None => {
                let free = session.client.free_space(&session.pool).await?;
                space.put(pool, free);
                free
            }
        };
        if free >= needed {
            return Ok(());
        }
        space.clear();
        Err(DriverError::Capacity(format!(
            "storage pool {pool} on {} has {} MiB free, and {what} image {:?} takes {} MiB: remove machines, add disk space to the pool (then virsh pool-refresh {pool}){or_else}",
            self.settings.address,
            free >> 20,
            spec.image,
            needed.div_ceil(1 << 20),
        )))
    }

    pub(super) fn no_memory(&self, spec: &VmSpec, left_mib: u64) -> DriverError {
        DriverError::Capacity(format!(
            "{} has {left_mib} MiB of memory left, and the machine asks for {} MiB: remove machines, or add memory to the host; spec.limits.memory of the WindowsHypervisor refuses machines before the host does",
            self.settings.address, spec.memory_mib
        ))
    }
}

/// Refuses a system disk that is too small for its image.
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
