//! Requests that read what a host has, beside those of a VM's life in `client.rs`.

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

    /// Bytes that the pool has left, as of its last refresh and less what was made since.
    pub async fn free_space(&self, pool: &Pool) -> Result<u64, Error> {
        let answer = self.call("StoragePoolGetInfo", Reads, 87, with_pool(pool)).await?;
        let mut decoder = Decoder(&answer);
        let (_state, _capacity, _allocation) = (decoder.u32()?, decoder.u64()?, decoder.u64()?);
        Ok(decoder.u64()?)
    }

    /// What VMs of that type can have, in XML. It is refused if the host runs none.
    pub async fn domain_capabilities(&self, domain_type: &str) -> Result<String, Error> {
        const NO_EMULATOR: Option<&str> = None;
        let arguments = Encoder::default().optional_text(NO_EMULATOR).optional_text(Some(ARCHITECTURE)).optional_text(Some(MACHINE));
        let arguments = arguments.optional_text(Some(domain_type)).u32(0);
        Ok(Decoder(&self.call("ConnectGetDomainCapabilities", Reads, 342, arguments).await?).text()?)
    }

    /// Names of the host's network interfaces, bridges among them. `None`: the daemon does not list them.
    pub async fn interfaces(&self) -> Result<Option<Vec<String>>, Error> {
        let answer = match self.call("ConnectListAllInterfaces", Reads, 284, Encoder::default().u32(1).u32(0)).await {
            // Whatever the reason: there is no driver for it, its daemon does not run, or it is not allowed.
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

    /// Names of all networks, active or not.
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

    /// Whether a domain runs, or is paused. One that is not there does not.
    pub async fn is_active(&self, it: &Domain) -> Result<bool, Error> {
        let answer = unless(self.call("DomainIsActive", Reads, 150, with_domain(it)).await, code::NO_DOMAIN)?;
        Ok(answer.map(|answer| Decoder(&answer).u32()).transpose()? == Some(1))
    }

    /// The definition of the volume with that path, in any pool. `None`: it is in no pool that is active.
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
