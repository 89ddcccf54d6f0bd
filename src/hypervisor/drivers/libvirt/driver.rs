//! The driver of one host: its settings, its connection, and what it has seen of the host.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::MutexGuard;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::address::Address;
use super::addresses::Addresses;
use super::capabilities::Capabilities;
use super::client::Volume;
use super::copies::Copies;
use super::definitions::Definitions;
use super::link::{Link, Session};
use super::listing::Seen as Listed;
use super::logs::TurnedOver;
use super::looks::Looks;
use super::memory::Memory;
use super::refusal::{BEING_MADE, Error, code, unless};
use super::told::Told;
use super::volumes::Image;
use crate::api::hypervisor::Libvirt;
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::Fresh;
use crate::hypervisor::login::Login;
use crate::hypervisor::shutdowns::Shutdowns;
use crate::hypervisor::wire::Wire;
use crate::vm::GuestReport;

/// A connection to one libvirt host.
pub struct LibvirtDriver {
    pub(super) settings: Libvirt,
    is_session: bool,
    pub(super) link: Link,
    pub(super) images: Mutex<Fresh<Image>>,
    pub(super) networks: Mutex<Option<(Vec<String>, Instant)>>,
    /// The names of the host's interfaces; `None` if the daemon does not list them.
    pub(super) interfaces: Mutex<Fresh<Option<Vec<String>>>>,
    pub(super) capabilities: Mutex<Fresh<Capabilities>>,
    /// The free bytes of the pool.
    pub(super) space: Mutex<Fresh<u64>>,
    pub(super) memory: Mutex<Memory>,
    pub(super) copies: Copies,
    pub(super) definitions: Definitions,
    pub(super) turned_over: TurnedOver,
    pub(super) addresses: Addresses,
    pub(super) listed: Mutex<Listed>,
    pub(super) looks: Looks,
    pub(super) told: Arc<Told>,
    /// The reports of guests in the last listing.
    reports: parking_lot::Mutex<HashMap<VmUuid, GuestReport>>,
    pub(super) shutdowns: Shutdowns,
}

impl LibvirtDriver {
    /// Creates the driver. It sends nothing to the host before the first call.
    pub fn new(settings: Libvirt, login: &Login, wire: Wire) -> Result<Self, DriverError> {
        let told = Arc::<Told>::default();
        let link = Link::new(&settings.address, &settings.pool, login, wire, told.clone())?;
        let is_session = Address::parse(&settings.address)?.is_session();
        Ok(Self {
            settings,
            is_session,
            link,
            images: Mutex::default(),
            networks: Mutex::default(),
            interfaces: Mutex::default(),
            capabilities: Mutex::default(),
            space: Mutex::default(),
            memory: Mutex::default(),
            copies: Copies::default(),
            definitions: Definitions::default(),
            turned_over: TurnedOver::default(),
            addresses: Addresses::default(),
            listed: Mutex::default(),
            looks: Looks::default(),
            told,
            reports: parking_lot::Mutex::default(),
            shutdowns: Shutdowns::default(),
        })
    }

    pub(super) fn reports(&self) -> MutexGuard<'_, HashMap<VmUuid, GuestReport>> {
        self.reports.lock()
    }

    /// Returns the network of interfaces that name none.
    pub(super) fn default_network(&self) -> Option<&str> {
        self.settings.network.as_deref().or((!self.is_session).then_some("default"))
    }

    pub(super) fn conflict(&self, domain: &str) -> DriverError {
        DriverError::Conflict(format!("domain {domain} on {} has no mark of CAPW for this machine: it is left alone", self.settings.address))
    }

    /// Deletes volumes. False: the daemon is still creating one of them, and will finish it first.
    pub(super) async fn delete_volumes(&self, session: &Session, volumes: &[Volume]) -> Result<bool, DriverError> {
        for volume in volumes {
            match session.client.delete_volume(&session.pool, volume).await {
                Err(Error::Refused { code: code::OPERATION_INVALID, text }) if text.contains(BEING_MADE) => return Ok(false),
                deleted => unless(deleted, code::NO_STORAGE_VOL)?,
            };
        }
        Ok(true)
    }
}
