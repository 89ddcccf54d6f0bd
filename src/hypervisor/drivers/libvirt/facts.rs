//! Requests that read facts about a host; the requests for a VM's life are in `client.rs`.

use super::client::{Client, Domain, Pool, with_domain, with_pool};
use super::hardware::{ARCHITECTURE, MACHINE};
use super::refusal::{Error, code, unless};
use super::xdr::{Decoder, Encoder};
use crate::hypervisor::wire::Effect::Reads;

impl Client {
    pub async fn pool_xml(&self, pool: &Pool) -> Result<String, Error> {
        let answer = self.call("StoragePoolGetXmlDesc", Reads, 88, with_pool(pool).u32(0)).await?;
        Ok(Decoder(&answer).text()?)
    }

    /// Returns the free bytes of the pool at its last refresh, less the volumes created since.
    pub async fn free_space(&self, pool: &Pool) -> Result<u64, Error> {
        let answer = self.call("StoragePoolGetInfo", Reads, 87, with_pool(pool)).await?;
        let mut decoder = Decoder(&answer);
        let (_state, _capacity, _allocation) = (decoder.u32()?, decoder.u64()?, decoder.u64()?);
        Ok(decoder.u64()?)
    }

    /// Returns the capabilities for VMs of that type, in XML. The daemon refuses if the host runs no such VMs.
    pub async fn domain_capabilities(&self, domain_type: &str) -> Result<String, Error> {
        const NO_EMULATOR: Option<&str> = None;
        let arguments = Encoder::default().optional_text(NO_EMULATOR).optional_text(Some(ARCHITECTURE)).optional_text(Some(MACHINE));
        let arguments = arguments.optional_text(Some(domain_type)).u32(0);
        Ok(Decoder(&self.call("ConnectGetDomainCapabilities", Reads, 342, arguments).await?).text()?)
    }

    /// Lists the names of the host's network interfaces, including bridges. `None`: the daemon does not list them.
    pub async fn interfaces(&self) -> Result<Option<Vec<String>>, Error> {
        let answer = match self.call("ConnectListAllInterfaces", Reads, 284, Encoder::default().u32(1).u32(0)).await {
            // Any refusal counts: libvirt has no driver for interfaces, its daemon does not run, or access is denied.
            Err(Error::Refused { .. }) => return Ok(None),
            answer => answer?,
        };
        let names = Decoder(&answer).list(|decoder| {
            let name = decoder.text()?;
            decoder.text()?;
            Ok(name)
        })?;
        Ok(Some(names))
    }

    /// Lists the names of all networks, active or not.
    pub async fn networks(&self) -> Result<Vec<String>, Error> {
        self.list_networks(0).await
    }

    pub async fn active_networks(&self) -> Result<Vec<String>, Error> {
        const ACTIVE: u32 = 2;
        self.list_networks(ACTIVE).await
    }

    async fn list_networks(&self, which: u32) -> Result<Vec<String>, Error> {
        let answer = self.call("ConnectListAllNetworks", Reads, 283, Encoder::default().u32(1).u32(which)).await?;
        Ok(Decoder(&answer).list(|decoder| {
            let name = decoder.text()?;
            decoder.uuid()?;
            Ok(name)
        })?)
    }

    /// Whether a domain runs or is paused; false for a domain that does not exist.
    pub async fn is_active(&self, it: &Domain) -> Result<bool, Error> {
        let answer = unless(self.call("DomainIsActive", Reads, 150, with_domain(it)).await, code::NO_DOMAIN)?;
        Ok(answer.map(|answer| Decoder(&answer).u32()).transpose()? == Some(1))
    }

    /// Reads the definition of the volume with that path, in any pool. `None`: no active pool has it.
    pub async fn volume_xml_by_path(&self, path: &str) -> Result<Option<String>, Error> {
        let Some(answer) = unless(self.call("StorageVolLookupByPath", Reads, 97, Encoder::default().text(path)).await, code::NO_STORAGE_VOL)? else {
            return Ok(None);
        };
        let mut decoder = Decoder(&answer);
        let (pool, name, key) = (decoder.text()?, decoder.text()?, decoder.text()?);
        let arguments = Encoder::default().text(&pool).text(&name).text(&key).u32(0);
        let answer = self.call("StorageVolGetXmlDesc", Reads, 99, arguments).await?;
        Ok(Some(Decoder(&answer).text()?))
    }
}
