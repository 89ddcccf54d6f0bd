//! Creates the parts of a VM: checks its image, its networks and its memory, and creates its volumes and its definition.

use std::sync::Arc;

use super::checks::check_size;
use super::client::Volume;
use super::disks::Chain;
use super::domain::{self, Host};
use super::driver::LibvirtDriver;
use super::link::Session;
use super::observe::refuse_hidden;
use super::refusal::{Error, code, unless};
use super::volumes::{self, Image, Volumes};
use crate::api::hypervisor::{CloneMode, GuestWords};
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::{MachineKey, Seed, Thing, VmSpec};

/// Whether a machine is known to have a domain while its volumes are created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Defined {
    Yes,
    /// No domain existed at the last check.
    No,
}

/// A volume to create.
struct New<'a> {
    name: &'a str,
    xml: &'a str,
    /// Whether an existing volume of this name is kept; otherwise it is recreated.
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
            for name in [name, &with_end] {
                refuse_hidden(session, name).await?;
            }
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
        let image = with_chain(session, image).await?;
        images.put(name, image.clone());
        Ok(image)
    }

    /// Refuses a VM that the host has no memory for: libvirt would start it, and the host kills another VM when its memory runs out.
    async fn check_memory(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        let given = self.memory.lock().await.give(session, spec.memory_mib).await?;
        match given {
            Ok(()) => Ok(()),
            Err(left) => Err(self.no_memory(spec, left)),
        }
    }

    /// Refuses to change volumes that a foreign VM of this name may use. The value: whether a domain with our UUID exists.
    pub(super) async fn refuse_other(&self, session: &Session, key: &MachineKey) -> Result<Defined, DriverError> {
        match unless(session.client.domain_by_name(Volumes::of(key).vm()).await, code::NO_DOMAIN)? {
            Some(other) if other.uuid != key.vm.0 => Err(self.conflict(&other.name)),
            Some(_) => Ok(Defined::Yes),
            None => Ok(Defined::No),
        }
    }

    /// Creates a volume of that definition. An existing volume is kept, or recreated if its content may be torn.
    async fn make_volume(&self, session: &Session, key: &MachineKey, volume: New<'_>, defined: Defined) -> Result<Volume, DriverError> {
        let New { name, xml, keep } = volume;
        let (client, pool) = (&session.client, &session.pool);
        if let Some(volume) = unless(client.create_volume(pool, xml).await, code::STORAGE_VOL_EXIST)? {
            return Ok(volume);
        }
        // The volume is left from an earlier attempt, unless a foreign VM of this name uses it.
        if self.refuse_other(session, key).await? == Defined::Yes && defined == Defined::No {
            return Err(DriverError::Transient(format!("another process has made domain {} meanwhile: it is checked again", Volumes::of(key).vm())));
        }
        let volume = Volume { name: name.to_owned(), key: String::new() };
        if keep {
            let Some(found) = client.volumes(pool).await?.into_iter().find(|found| found.name == name) else {
                return Err(DriverError::Transient(format!("volume {name} was there and is not: it is made at the next try")));
            };
            // The pool lists a volume before its file exists.
            if client.is_being_made(pool, &found).await? {
                return Err(DriverError::Transient(format!("another process is making volume {name}: it is checked again")));
            }
            return Ok(found);
        }
        unless(client.delete_volume(pool, &volume).await, code::NO_STORAGE_VOL)?;
        Ok(client.create_volume(pool, xml).await?)
    }

    pub(super) async fn make_drive(&self, session: &Session, key: &MachineKey, seed: &Seed, defined: Defined) -> Result<(), DriverError> {
        let SeedImage::Drive(image) = SeedImage::from(seed) else {
            return Err(DriverError::Invalid("libvirt has no guestinfo: choose another spec.channel of the WindowsBootstrapConfig".into()));
        };
        let name = Volumes::of(key).drive();
        if defined == Defined::Yes && self.holds(session, &name, &image).await? {
            return Ok(());
        }
        let new = New { name: &name, xml: &volumes::raw(&name, image.len()), keep: false };
        let volume = self.make_volume(session, key, new, defined).await?;
        Ok(session.client.upload(&session.pool, &volume, &image).await?)
    }

    /// Whether a volume exists with these bytes; false for a volume that cannot be read.
    async fn holds(&self, session: &Session, name: &str, bytes: &[u8]) -> Result<bool, DriverError> {
        let volume = Volume { name: name.to_owned(), key: String::new() };
        match session.client.download(&session.pool, &volume, 0, 0).await {
            Err(Error::Refused { .. }) => Ok(false),
            read => Ok(read? == bytes),
        }
    }

    /// Creates all parts of a VM. False: the copy of its image is not ready yet.
    pub(super) async fn make(&self, session: &Arc<Session>, key: &MachineKey, spec: &VmSpec, seed: &Seed) -> Result<bool, DriverError> {
        let names = Volumes::of(key);
        let make = async |name: String, xml: String| self.make_volume(session, key, New { name: &name, xml: &xml, keep: true }, Defined::No).await;
        self.check_networks(session, spec).await?;
        self.check_memory(session, spec).await?;
        let image = self.image(session, &spec.image).await?;
        check_size(spec, &image)?;
        let under_system = if self.settings.clone == CloneMode::Full {
            if !self.copy(session, key, &image, spec.system_disk_gib).await? {
                return Ok(false);
            }
            Chain::none()
        } else {
            let system = names.system();
            let xml = volumes::over_image(&system, &image, spec.system_disk_gib);
            make(system, xml).await?;
            image.under_disks()
        };
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
            storage: &session.storage,
            acceleration: self.settings.acceleration,
            devices: self.settings.devices,
            default_network: self.default_network(),
            console: self.settings.console,
            log: log.as_ref().map(|log| log.key.as_str()),
        };
        let definition = domain::definition(key, spec, &host, &under_system);
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

/// Adds every file under an image to its chain, as far as the files are volumes of the daemon.
async fn with_chain(session: &Session, mut image: Image) -> Result<Image, DriverError> {
    while let Some(layer) = image.chain.next().filter(|_| session.storage.is_of_files()) {
        let Some(xml) = session.client.volume_xml_by_path(&layer.path).await? else { break };
        let Some(below) = Image::read(&xml) else { break };
        image.chain.extend(below.chain);
    }
    Ok(image)
}
