//! What a VM is made of: the image that it comes from, its networks, its volumes and its definition.

use std::sync::Arc;

use tokio::time::Instant;

use super::client::Volume;
use super::domain::{self, BRIDGE, Host};
use super::link::Session;
use super::refusal::{Error, code, unless};
use super::volumes::{self, Image, Volumes};
use super::{Defined, LibvirtDriver};
use crate::api::hypervisor::{CloneMode, GuestWords};
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::{FRESH, listed};
use crate::vm::{MachineKey, Seed, Thing, VmSpec};

/// A volume to be made.
struct New<'a> {
    name: &'a str,
    xml: &'a str,
    /// One of this name that is there is as good; else it is made anew.
    keep: bool,
}

impl LibvirtDriver {
    pub(super) async fn image(&self, session: &Session, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        if let Some(image) = images.get(name) {
            return Ok(image);
        }
        let volumes = session.client.volumes(&session.pool).await?;
        let with_end = format!("{name}.qcow2");
        let Some(volume) = volumes.iter().find(|volume| volume.name == name).or_else(|| volumes.iter().find(|volume| volume.name == with_end)) else {
            let there = listed(volumes.iter().map(|volume| volume.name.as_str()).filter(|name| volumes::vm_of(name).is_none()));
            let text = format!(
                "image {name:?} is no volume of pool {} on {}, which has {there}: correct spec.image of the machine or spec.images of the WindowsHypervisor, or add the image (virsh vol-upload; virsh pool-refresh {})",
                session.pool.name, self.settings.address, session.pool.name
            );
            return Err(DriverError::Missing { thing: Thing::Image, text });
        };
        let xml = session.client.volume_xml(&session.pool, volume).await?;
        let image = Image::read(&xml).filter(|image| ["qcow2", "raw"].contains(&image.format.as_str())).ok_or_else(|| {
            DriverError::Invalid(format!("image {:?} is neither qcow2 nor raw: convert it with qemu-img convert -O qcow2", volume.name))
        })?;
        images.put(name, image.clone());
        Ok(image)
    }

    pub(super) async fn check_networks(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        let named = spec.nics.iter().filter_map(|nic| nic.network.as_deref().or(self.default_network()));
        let named: Vec<&str> = named.filter(|name| !name.starts_with(BRIDGE)).collect();
        if named.is_empty() {
            return Ok(());
        }
        let mut networks = self.networks.lock().await;
        let known = match &*networks {
            Some((known, since)) if since.elapsed() < FRESH => known.clone(),
            _ => session.client.networks().await?,
        };
        let missing = named.iter().find(|name| !known.iter().any(|known| known == *name));
        let Some(missing) = missing else {
            *networks = Some((known, Instant::now()));
            return Ok(());
        };
        *networks = None;
        let there = listed(known.iter().map(String::as_str));
        let text = format!(
            "{} has no network {missing:?}; it has {there}: correct spec.networks of the machine or spec.libvirt.network of the WindowsHypervisor; a bridge of the host is named bridge:NAME",
            self.settings.address
        );
        Err(DriverError::Missing { thing: Thing::Network, text })
    }

    /// Refuses what the host has no memory for: libvirt starts any VM, and the host kills another one when it has none left.
    async fn check_memory(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        let given = self.memory.lock().await.give(session, spec.memory_mib).await?;
        match given {
            Ok(()) => Ok(()),
            Err(available) => Err(DriverError::Capacity(format!(
                "{} has {available} MiB of memory left, and the machine asks for {} MiB: remove machines, or add memory to the host; spec.limits.memory of the WindowsHypervisor refuses machines before the host does",
                self.settings.address, spec.memory_mib
            ))),
        }
    }

    /// Refuses to change volumes that a VM of this name that is not ours may use. The value: whether there is one with our UUID.
    pub(super) async fn refuse_other(&self, session: &Session, key: &MachineKey) -> Result<Defined, DriverError> {
        match unless(session.client.domain_by_name(Volumes::of(key).vm()).await, code::NO_DOMAIN)? {
            Some(other) if other.uuid != key.vm.0 => Err(self.conflict(&other.name)),
            Some(_) => Ok(Defined::Yes),
            None => Ok(Defined::No),
        }
    }

    /// A volume of that definition. One that is there is kept, or made anew if its content may be torn.
    async fn make_volume(&self, session: &Session, key: &MachineKey, volume: New<'_>, defined: Defined) -> Result<Volume, DriverError> {
        let New { name, xml, keep } = volume;
        let (client, pool) = (&session.client, &session.pool);
        if let Some(volume) = unless(client.create_volume(pool, xml).await, code::STORAGE_VOL_EXIST)? {
            return Ok(volume);
        }
        // Left of an earlier attempt, unless a VM of this name that is not ours uses it.
        if self.refuse_other(session, key).await? == Defined::Yes && defined == Defined::No {
            return Err(DriverError::Transient(format!(
                "another process has made domain {} meanwhile: it is looked at again",
                Volumes::of(key).vm()
            )));
        }
        let volume = Volume { name: name.to_owned(), key: String::new() };
        if keep {
            let found = client.volumes(pool).await?.into_iter().find(|found| found.name == name);
            return found.ok_or_else(|| DriverError::Transient(format!("volume {name} was there and is not: it is made at the next try")));
        }
        unless(client.delete_volume(pool, &volume).await, code::NO_STORAGE_VOL)?;
        Ok(client.create_volume(pool, xml).await?)
    }

    pub(super) async fn make_drive(&self, session: &Session, key: &MachineKey, seed: &Seed, defined: Defined) -> Result<(), DriverError> {
        let SeedImage::Drive(image) = SeedImage::from(seed) else {
            return Err(DriverError::Invalid("libvirt has no guestinfo: choose another spec.channel of the WindowsBootstrapConfig".into()));
        };
        let name = Volumes::of(key).drive();
        let new = New { name: &name, xml: &volumes::raw(&name, image.len()), keep: false };
        let volume = self.make_volume(session, key, new, defined).await?;
        Ok(session.client.upload(&session.pool, &volume, &image).await?)
    }

    /// Makes everything that a VM is. False: the copy of its image is not ready yet.
    pub(super) async fn make(&self, session: &Arc<Session>, key: &MachineKey, spec: &VmSpec, seed: &Seed) -> Result<bool, DriverError> {
        let names = Volumes::of(key);
        let make = async |name: String, xml: String| self.make_volume(session, key, New { name: &name, xml: &xml, keep: true }, Defined::No).await;
        self.check_memory(session, spec).await?;
        let image = self.image(session, &spec.image).await?;
        let smallest = image.bytes.div_ceil(1 << 30);
        if spec.system_disk_gib.is_some_and(|gib| gib < smallest) {
            return Err(DriverError::Invalid(format!(
                "image {:?} needs a system disk of {smallest} GiB: raise spec.systemDisk of the machine",
                spec.image
            )));
        }
        if self.settings.clone == CloneMode::Full {
            if !self.copy(session, key, &image, spec.system_disk_gib).await? {
                return Ok(false);
            }
        } else {
            let system = names.system();
            let xml = volumes::over_image(&system, &image, spec.system_disk_gib);
            make(system, xml).await?;
        }
        for disk in &spec.disks {
            let name = names.disk(&disk.name);
            let xml = volumes::empty_disk(&name, disk.gib);
            make(name, xml).await?;
        }
        let log = match self.settings.words {
            GuestWords::Serial => Some(make(names.log(), volumes::raw(&names.log(), 0)).await?),
            GuestWords::Agent => None,
        };
        self.make_drive(session, key, seed, Defined::No).await?;
        let host = Host {
            pool: &session.pool.name,
            acceleration: self.settings.acceleration,
            devices: self.settings.devices,
            default_network: self.default_network(),
            log: log.as_ref().map(|log| log.key.as_str()),
        };
        let definition = domain::definition(key, spec, &host);
        match session.client.define(&definition).await {
            Err(Error::Refused { code: code::OPERATION_FAILED, text }) if text.contains("already exists") => Err(self.conflict(names.vm())),
            defined => {
                defined?;
                self.definitions.note(key.vm, &definition);
                Ok(true)
            }
        }
    }
}
