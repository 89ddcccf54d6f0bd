//! The `libvirt` driver: QEMU on a host of one's own.
//!
//! A VM is a domain and its volumes in one pool: the system disk over an image, the configuration drive, and a file with what its guest
//! writes to the serial port. Name and UUID are ours and the daemon refuses a second VM with one of them; the mark is in the domain's
//! metadata. The domain goes last, so it says of leftovers whose they are.

mod address;
mod client;
mod domain;
mod link;
mod listing;
mod rpc;
#[cfg(test)]
mod tests;
mod volumes;
mod xdr;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::address::Address;
use self::client::{Domain, Error, Volume, code, unless};
use self::domain::{BRIDGE, Found, Host};
use self::link::{Link, Session};
use self::listing::Seen;
use self::volumes::{Image, Volumes};
use super::login::Login;
use super::wire::Wire;
use super::{Caps, Driver, DriverError, DriverStep, Endpoint, Listing, Wanted};
use crate::api::hypervisor::Libvirt;
use crate::bootstrap::delivery::SeedImage;
use crate::vm::{Journal, MachineKey, Observed, Power, Present, Seed, SeedKind, Seeded, StopMode, Thing, VmSpec};

const CAPS: Caps =
    Caps { driver: "libvirt", seeds: &[SeedKind::Drive], tick: Duration::from_secs(10), deadline: Duration::from_secs(60), reads: 8, changes: 4 };
/// What the host has of images and networks is believed for so long.
const FRESH: Duration = Duration::from_secs(60);
/// Between two looks at a guest that shuts down.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// A connection to one libvirt host.
pub struct LibvirtDriver {
    settings: Libvirt,
    is_session: bool,
    link: Link,
    /// Images that were found, by name, and when.
    images: Mutex<Vec<(String, Image, Instant)>>,
    networks: Mutex<Option<(Vec<String>, Instant)>>,
    seen: Mutex<Seen>,
}

impl LibvirtDriver {
    /// Nothing is asked of the host before the first call.
    pub fn new(settings: Libvirt, login: &Login, wire: Wire) -> Result<Self, DriverError> {
        let link = Link::new(&settings.address, &settings.pool, login, wire)?;
        let is_session = Address::parse(&settings.address)?.is_session();
        Ok(Self { settings, is_session, link, images: Mutex::default(), networks: Mutex::default(), seen: Mutex::default() })
    }

    /// The network of interfaces that name none.
    fn default_network(&self) -> Option<&str> {
        self.settings.network.as_deref().or((!self.is_session).then_some("default"))
    }

    /// The domain with the UUID of that machine, whoever made it.
    async fn find(session: &Session, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        let domain = domain(key);
        let Some(xml) = unless(session.client.domain_xml(&domain).await, code::NO_DOMAIN)? else { return Ok(None) };
        Found::read(&xml).map(Some).ok_or_else(|| DriverError::Transient(format!("the definition of domain {} cannot be read", domain.name)))
    }

    async fn find_ours(&self, session: &Session, key: &MachineKey) -> Result<Option<Found>, DriverError> {
        match Self::find(session, key).await? {
            Some(found) if !found.is_ours(key) => Err(self.conflict(&found.name)),
            found => Ok(found),
        }
    }

    fn conflict(&self, domain: &str) -> DriverError {
        DriverError::Conflict(format!("domain {domain} on {} has no mark of CAPW for this machine: it is left alone", self.settings.address))
    }

    /// What is there of a machine beside its domain.
    async fn volumes(session: &Session, key: &MachineKey) -> Result<Vec<Volume>, DriverError> {
        let names = Volumes::of(key);
        Ok(session.client.volumes(&session.pool).await?.into_iter().filter(|volume| names.contain(&volume.name)).collect())
    }

    async fn image(&self, session: &Session, name: &str) -> Result<Image, DriverError> {
        let mut images = self.images.lock().await;
        images.retain(|(_, _, since)| since.elapsed() < FRESH);
        if let Some((_, image, _)) = images.iter().find(|(known, _, _)| known == name) {
            return Ok(image.clone());
        }
        let volumes = session.client.volumes(&session.pool).await?;
        let with_end = format!("{name}.qcow2");
        let Some(volume) = volumes.iter().find(|volume| volume.name == name).or_else(|| volumes.iter().find(|volume| volume.name == with_end)) else {
            let there: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).filter(|name| volumes::vm_of(name).is_none()).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
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
        images.push((name.to_owned(), image.clone(), Instant::now()));
        Ok(image)
    }

    async fn check_networks(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
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
        let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let text = format!(
            "{} has no network {missing:?}; it has {there}: correct spec.networks of the machine or spec.libvirt.network of the WindowsHypervisor; a bridge of the host is named bridge:NAME",
            self.settings.address
        );
        Err(DriverError::Missing { thing: Thing::Network, text })
    }

    /// A volume of that definition. One that is there is kept, or made anew if its content may be torn.
    async fn make_volume(&self, session: &Session, key: &MachineKey, name: &str, xml: &str, keep: bool) -> Result<Volume, DriverError> {
        let (client, pool) = (&session.client, &session.pool);
        if let Some(volume) = unless(client.create_volume(pool, xml).await, code::STORAGE_VOL_EXIST)? {
            return Ok(volume);
        }
        // Left of an earlier attempt, unless a VM of this name that is not ours uses it.
        if let Some(domain) = unless(client.domain_by_name(Volumes::of(key).vm()).await, code::NO_DOMAIN)?
            && domain.uuid != key.vm.0
        {
            return Err(self.conflict(&domain.name));
        }
        let volume = Volume { name: name.to_owned(), key: String::new() };
        if keep {
            let found = client.volumes(pool).await?.into_iter().find(|found| found.name == name);
            return found.ok_or_else(|| DriverError::Transient(format!("volume {name} was there and is not: it is made at the next try")));
        }
        unless(client.delete_volume(pool, &volume).await, code::NO_STORAGE_VOL)?;
        Ok(client.create_volume(pool, xml).await?)
    }

    async fn make_drive(&self, session: &Session, key: &MachineKey, seed: &Seed) -> Result<(), DriverError> {
        let SeedImage::Drive(image) = SeedImage::from(seed) else {
            return Err(DriverError::Invalid("libvirt has no guestinfo: choose another spec.channel of the WindowsBootstrapConfig".into()));
        };
        let name = Volumes::of(key).drive();
        let volume = self.make_volume(session, key, &name, &volumes::raw(&name, image.len()), false).await?;
        Ok(session.client.upload(&session.pool, &volume, &image).await?)
    }

    async fn make(&self, session: &Session, key: &MachineKey, spec: &VmSpec, seed: &Seed) -> Result<(), DriverError> {
        let names = Volumes::of(key);
        let image = self.image(session, &spec.image).await?;
        let smallest = image.bytes.div_ceil(1 << 30);
        if spec.system_disk_gib.is_some_and(|gib| gib < smallest) {
            return Err(DriverError::Invalid(format!(
                "image {:?} needs a system disk of {smallest} GiB: raise spec.systemDisk of the machine",
                spec.image
            )));
        }
        let system = names.system();
        self.make_volume(session, key, &system, &volumes::over_image(&system, &image, spec.system_disk_gib), true).await?;
        for disk in &spec.disks {
            let name = names.disk(&disk.name);
            self.make_volume(session, key, &name, &volumes::empty_disk(&name, disk.gib), true).await?;
        }
        let log = self.make_volume(session, key, &names.log(), &volumes::raw(&names.log(), 0), true).await?;
        self.make_drive(session, key, seed).await?;
        let host = Host {
            pool: &session.pool.name,
            acceleration: self.settings.acceleration,
            devices: self.settings.devices,
            default_network: self.default_network(),
            log: &log.key,
        };
        match session.client.define(&domain::definition(key, spec, &host)).await {
            Err(Error::Refused { code: code::OPERATION_FAILED, text }) if text.contains("already exists") => Err(self.conflict(names.vm())),
            defined => Ok(defined?),
        }
    }

    async fn start(&self, session: &Session, key: &MachineKey) -> Result<(), DriverError> {
        match session.client.start(&domain(key)).await {
            // Another process was faster.
            Err(Error::Refused { code: code::OPERATION_INVALID, .. }) => Ok(()),
            // The text is QEMU's own.
            Err(Error::Refused { code: code::INTERNAL_ERROR, text }) => {
                match DriverError::from(Error::Refused { code: code::INTERNAL_ERROR, text }) {
                    DriverError::Transient(text) => Err(DriverError::Invalid(format!("the VM does not start: {text}"))),
                    error => Err(error),
                }
            }
            started => Ok(started?),
        }
    }

    async fn delete_volumes(&self, session: &Session, volumes: &[Volume]) -> Result<(), DriverError> {
        for volume in volumes {
            unless(session.client.delete_volume(&session.pool, volume).await, code::NO_STORAGE_VOL)?;
        }
        Ok(())
    }
}

fn domain(key: &MachineKey) -> Domain {
    Domain { name: Volumes::of(key).vm().to_owned(), uuid: key.vm.0 }
}

#[async_trait]
impl Driver for LibvirtDriver {
    fn caps(&self) -> &Caps {
        &CAPS
    }

    async fn describe(&self) -> Result<Endpoint, DriverError> {
        let session = self.link.session().await?;
        if !session.client.pool_is_active(&session.pool).await? {
            let text =
                format!("storage pool {} on {} is not active: virsh pool-start {}", session.pool.name, self.settings.address, session.pool.name);
            return Err(DriverError::Missing { thing: Thing::Placement, text });
        }
        let (version, node) = (session.client.version().await?, session.client.node().await?);
        Ok(Endpoint {
            id: format!("libvirt pool {}", session.pool.uuid),
            version: format!("libvirt {}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000),
            cpus: Some(i64::from(node.cpus)),
            memory_mib: Some(node.memory_kib >> 10),
            lacks: Vec::new(),
        })
    }

    async fn check(&self, spec: &VmSpec, _seed: SeedKind) -> Result<(), DriverError> {
        let session = self.link.session().await?;
        self.image(&session, &spec.image).await?;
        self.check_networks(&session, spec).await
    }

    async fn list(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        let session = self.link.session().await?;
        self.seen.lock().await.list(&session, wanted).await
    }

    async fn observe(&self, key: &MachineKey, _journal: &Journal) -> Result<Observed, DriverError> {
        let session = self.link.session().await?;
        let found = Self::find(&session, key).await?;
        if let Some(found) = found.as_ref().filter(|found| !found.is_ours(key)) {
            let is_marked = found.owner.as_ref().is_some_and(|(_, mark)| key.is_named_by(mark));
            return Ok(Observed::Foreign { what: format!("domain {} on {}", found.name, self.settings.address), is_marked });
        }
        let volumes = Self::volumes(&session, key).await?;
        if found.is_none() && volumes.is_empty() {
            return Ok(Observed::Absent);
        }
        let drive = Volumes::of(key).drive();
        Ok(Observed::Present(Present {
            power: if found.as_ref().is_some_and(|found| found.is_active) { Power::On } else { Power::Off },
            seeded: Seeded::from_attached(volumes.iter().any(|volume| volume.name == drive)),
            vm: found.is_some(),
            addresses: Vec::new(),
            report: self.seen.lock().await.report(key.vm),
            trouble: None,
        }))
    }

    async fn plan(&self, _key: &MachineKey, _spec: &VmSpec, journal: &Journal) -> Result<Journal, DriverError> {
        // Name and UUID are computed: there is nothing to choose.
        Ok(journal.clone())
    }

    async fn advance(
        &self,
        key: &MachineKey,
        spec: &VmSpec,
        seed: &Seed,
        _journal: &Journal,
        _observed: &Observed,
    ) -> Result<DriverStep, DriverError> {
        let session = self.link.session().await?;
        match self.find_ours(&session, key).await? {
            Some(found) if found.is_active => return Ok(DriverStep::Done),
            // It was made and not started, or was switched off before its seed was taken away.
            Some(found) if found.has_medium => self.make_drive(&session, key, seed).await?,
            Some(_) => {}
            None => self.make(&session, key, spec, seed).await?,
        }
        self.start(&session, key).await?;
        Ok(DriverStep::Changed)
    }

    async fn detach(&self, key: &MachineKey, _journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let session = self.link.session().await?;
        let Some(found) = self.find_ours(&session, key).await? else { return Ok(DriverStep::Done) };
        if found.has_medium {
            session.client.update_device(&domain(key), &domain::empty_drive(), found.is_active).await?;
        }
        let volume = Volume { name: Volumes::of(key).drive(), key: String::new() };
        let deleted = unless(session.client.delete_volume(&session.pool, &volume).await, code::NO_STORAGE_VOL)?;
        Ok(if found.has_medium || deleted.is_some() { DriverStep::Changed } else { DriverStep::Done })
    }

    async fn retire(&self, key: &MachineKey, how: StopMode, _journal: &Journal, _observed: &Observed) -> Result<DriverStep, DriverError> {
        let session = self.link.session().await?;
        let it = domain(key);
        let found = self.find_ours(&session, key).await?;
        if found.as_ref().is_some_and(|found| found.is_active) {
            if how == StopMode::Graceful {
                // A guest that is already off needs no request.
                unless(session.client.shutdown(&it).await, code::OPERATION_INVALID)?;
                return Ok(DriverStep::Wait { after: SHUTDOWN });
            }
            unless(unless(session.client.destroy(&it).await, code::OPERATION_INVALID).map(drop), code::NO_DOMAIN)?;
        }
        let volumes = Self::volumes(&session, key).await?;
        if found.is_none() {
            if volumes.is_empty() {
                return Ok(DriverStep::Done);
            }
            // Without a domain of ours they are left of one, unless another one of this name uses them.
            if let Some(other) = unless(session.client.domain_by_name(&it.name).await, code::NO_DOMAIN)?
                && other.uuid != it.uuid
            {
                return Err(self.conflict(&other.name));
            }
        }
        self.delete_volumes(&session, &volumes).await?;
        if found.is_some() {
            unless(session.client.undefine(&it).await, code::NO_DOMAIN)?;
        }
        Ok(DriverStep::Changed)
    }
}
