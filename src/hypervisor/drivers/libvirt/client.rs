//! The typed requests of this driver. Each is one call of libvirt's protocol (remote_protocol.x in its sources) and passes the wire.

use uuid::Uuid;

use super::refusal::{BEING_MADE, Error, code, unless};
use super::rights;
use super::rpc::{Connection, QEMU, RpcError};
use super::xdr::{Decoder, Encoder, Malformed};
use crate::hypervisor::wire::Effect::{self, Changes, Reads};
use crate::hypervisor::wire::Wire;

/// All NUMA cells of the host, in place of the number of one; -1 in the protocol.
const ALL_CELLS: u32 = u32::MAX;

/// A virtual machine, as libvirt names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub name: String,
    pub uuid: Uuid,
}

/// A domain in the listing, with the numbers of its state and of the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainState {
    pub domain: Domain,
    pub state: i32,
    pub reason: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub uuid: Uuid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    /// The key of the volume: its path, in pools of files.
    pub key: String,
}

/// The resources of the host.
pub struct Node {
    pub memory_kib: u64,
    pub cpus: u32,
}

/// A connection, and the wire that its requests pass.
pub struct Client {
    connection: Connection,
    wire: Wire,
    address: String,
}

impl Client {
    pub fn new(connection: Connection, wire: Wire, address: &str) -> Self {
        Self { connection, wire, address: address.to_owned() }
    }

    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Lists the daemon's authentication methods: 0 is none.
    pub async fn auth_list(&self) -> Result<Vec<u32>, Error> {
        let answer = self.call("AuthList", Reads, 66, Encoder::default()).await?;
        Ok(Decoder(&answer).list(Decoder::u32)?)
    }

    pub async fn open(&self, uri: &str) -> Result<(), Error> {
        self.call("ConnectOpen", Reads, 1, Encoder::default().optional_text(Some(uri)).u32(0)).await.map(|_| ())
    }

    pub async fn version(&self) -> Result<u64, Error> {
        Ok(Decoder(&self.call("ConnectGetLibVersion", Reads, 157, Encoder::default()).await?).u64()?)
    }

    pub async fn node(&self) -> Result<Node, Error> {
        let answer = self.call("NodeGetInfo", Reads, 6, Encoder::default()).await?;
        let mut decoder = Decoder(&answer);
        // Skips the model: 32 characters, each encoded as a number.
        decoder.take(32 * 4)?;
        Ok(Node { memory_kib: decoder.u64()?, cpus: decoder.u32()? })
    }

    /// Returns the memory for new VMs, in KiB: free memory, and memory that the host can reclaim. `None`: the host does not report it.
    pub async fn available_memory(&self) -> Result<Option<u64>, Error> {
        // The daemon of a Linux host accepts only this number of values.
        let arguments = Encoder::default().u32(4).u32(ALL_CELLS).u32(0);
        let Some(answer) = unless(self.call("NodeGetMemoryStats", Reads, 228, arguments).await, code::INVALID_ARG)? else { return Ok(None) };
        let values = Decoder(&answer).list(|decoder| Ok((decoder.text()?, decoder.u64()?)))?;
        let of = |names: &[&str]| values.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|(_, kib)| kib).sum();
        Ok(values.iter().any(|(name, _)| name == "free").then(|| of(&["free", "buffers", "cached"])))
    }

    pub async fn pool(&self, name: &str) -> Result<Pool, Error> {
        let answer = self.call("StoragePoolLookupByName", Reads, 84, Encoder::default().text(name)).await?;
        let mut decoder = Decoder(&answer);
        Ok(Pool { name: decoder.text()?, uuid: decoder.uuid()? })
    }

    pub async fn pool_is_active(&self, pool: &Pool) -> Result<bool, Error> {
        let answer = self.call("StoragePoolIsActive", Reads, 154, with_pool(pool)).await?;
        Ok(Decoder(&answer).u32()? != 0)
    }

    /// Lists the volumes of a pool, sorted by name.
    pub async fn volumes(&self, pool: &Pool) -> Result<Vec<Volume>, Error> {
        let answer = self.call("StoragePoolListAllVolumes", Reads, 282, with_pool(pool).u32(1).u32(0)).await?;
        let mut volumes = Decoder(&answer).list(volume)?;
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    pub async fn volume_xml(&self, pool: &Pool, volume: &Volume) -> Result<String, Error> {
        let answer = self.call("StorageVolGetXmlDesc", Reads, 99, with_volume(pool, volume).u32(0)).await?;
        Ok(Decoder(&answer).text()?)
    }

    pub async fn create_volume(&self, pool: &Pool, xml: &str) -> Result<Volume, Error> {
        let answer = self.call("StorageVolCreateXml", Changes, 93, with_pool(pool).text(xml).u32(0)).await?;
        Ok(volume(&mut Decoder(&answer))?)
    }

    /// Copies a volume; the daemon answers when the copy is complete.
    pub async fn copy_volume(&self, pool: &Pool, xml: &str, original: &Volume) -> Result<Volume, Error> {
        let arguments = with_pool(pool).text(xml).text(&pool.name).text(&original.name).text(&original.key).u32(0);
        let answer = self.call("StorageVolCreateXmlFrom", Changes, 125, arguments).await?;
        Ok(volume(&mut Decoder(&answer))?)
    }

    pub async fn resize_volume(&self, pool: &Pool, volume: &Volume, bytes: u64) -> Result<(), Error> {
        self.call("StorageVolResize", Changes, 260, with_volume(pool, volume).u64(bytes).u32(0)).await.map(|_| ())
    }

    /// Whether the content of a volume is incomplete, so that the daemon refuses to read it.
    pub async fn is_being_made(&self, pool: &Pool, volume: &Volume) -> Result<bool, Error> {
        match self.download(pool, volume, 0, 1).await {
            Err(Error::Refused { code: code::OPERATION_INVALID, text }) if text.contains(BEING_MADE) => Ok(true),
            read => read.map(|_| false),
        }
    }

    pub async fn upload(&self, pool: &Pool, volume: &Volume, data: &[u8]) -> Result<(), Error> {
        let length = u64::try_from(data.len()).unwrap_or_default();
        let arguments = with_volume(pool, volume).u64(0).u64(length).u32(0).bytes();
        self.request("StorageVolUpload", Changes, self.connection.upload(208, arguments, data)).await
    }

    /// Whether a volume of that name exists.
    pub async fn has_volume(&self, pool: &Pool, name: &str) -> Result<bool, Error> {
        let found = self.call("StorageVolLookupByName", Reads, 95, with_pool(pool).text(name)).await;
        Ok(unless(found, code::NO_STORAGE_VOL)?.is_some())
    }

    /// Reads the current length of a volume's file.
    pub async fn volume_length(&self, pool: &Pool, volume: &Volume) -> Result<u64, Error> {
        let answer = self.call("StorageVolGetInfo", Reads, 98, with_volume(pool, volume)).await?;
        let mut decoder = Decoder(&answer);
        let _kind = decoder.u32()?;
        Ok(decoder.u64()?)
    }

    /// Lets the daemon find files of a pool that it has not created.
    pub async fn refresh_pool(&self, pool: &Pool) -> Result<(), Error> {
        self.call("StoragePoolRefresh", Reads, 83, with_pool(pool).u32(0)).await.map(|_| ())
    }

    /// Reads a volume from `offset` on, at most `length` bytes; 0: the rest.
    pub async fn download(&self, pool: &Pool, volume: &Volume, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let arguments = with_volume(pool, volume).u64(offset).u64(length).u32(0).bytes();
        self.request("StorageVolDownload", Reads, self.connection.download(209, arguments)).await
    }

    pub async fn delete_volume(&self, pool: &Pool, volume: &Volume) -> Result<(), Error> {
        self.call("StorageVolDelete", Changes, 94, with_volume(pool, volume).u32(0)).await.map(|_| ())
    }

    /// Lists every domain with its state, by one request.
    pub async fn domains(&self) -> Result<Vec<DomainState>, Error> {
        const STATE: u32 = 1;
        let answer = self.call("ConnectGetAllDomainStats", Reads, 344, Encoder::default().u32(0).u32(STATE).u32(0)).await?;
        Ok(Decoder(&answer).list(|decoder| {
            let domain = domain(decoder)?;
            let numbers = decoder.list(parameter)?;
            let number = |name: &str| numbers.iter().find(|(field, _)| field == name).map_or(0, |(_, value)| *value);
            Ok(DomainState { domain, state: number("state.state"), reason: number("state.reason") })
        })?)
    }

    pub async fn domain_by_name(&self, name: &str) -> Result<Domain, Error> {
        let answer = self.call("DomainLookupByName", Reads, 23, Encoder::default().text(name)).await?;
        Ok(domain(&mut Decoder(&answer))?)
    }

    /// Reads the definition of a domain, which the daemon finds by its UUID.
    pub async fn domain_xml(&self, it: &Domain) -> Result<String, Error> {
        let answer = self.call("DomainGetXmlDesc", Reads, 14, with_domain(it).u32(0)).await?;
        Ok(Decoder(&answer).text()?)
    }

    pub async fn define(&self, xml: &str) -> Result<(), Error> {
        self.call("DomainDefineXmlFlags", Changes, 350, Encoder::default().text(xml).u32(0)).await.map(|_| ())
    }

    pub async fn start(&self, it: &Domain) -> Result<(), Error> {
        self.call("DomainCreateWithFlags", Changes, 196, with_domain(it).u32(0)).await.map(|_| ())
    }

    /// Requests a shutdown of the guest.
    pub async fn shutdown(&self, it: &Domain) -> Result<(), Error> {
        self.call("DomainShutdownFlags", Changes, 258, with_domain(it).u32(0)).await.map(|_| ())
    }

    /// Cuts the power of a domain.
    pub async fn destroy(&self, it: &Domain) -> Result<(), Error> {
        self.call("DomainDestroyFlags", Changes, 234, with_domain(it).u32(0)).await.map(|_| ())
    }

    /// Removes a domain with everything that belongs to it: a saved state, snapshots, the variables of its firmware.
    pub async fn undefine(&self, it: &Domain) -> Result<(), Error> {
        const MANAGED_SAVE: u32 = 1;
        const SNAPSHOTS: u32 = 2;
        const NVRAM: u32 = 4;
        let flags = MANAGED_SAVE | SNAPSHOTS | NVRAM;
        self.call("DomainUndefineFlags", Changes, 231, with_domain(it).u32(flags)).await.map(|_| ())
    }

    /// Replaces a device, even one that the guest has locked.
    pub async fn update_device(&self, it: &Domain, xml: &str, live: bool) -> Result<(), Error> {
        const LIVE: u32 = 1;
        const CONFIG: u32 = 2;
        const FORCE: u32 = 4;
        let flags = CONFIG | FORCE | if live { LIVE } else { 0 };
        self.call("DomainUpdateDeviceFlags", Changes, 174, with_domain(it).text(xml).u32(flags)).await.map(|_| ())
    }

    /// Lists the addresses that libvirt's networks have leased to a domain.
    pub async fn leases(&self, it: &Domain) -> Result<Vec<String>, Error> {
        const LEASE: u32 = 0;
        let answer = self.call("DomainInterfaceAddresses", Reads, 353, with_domain(it).u32(LEASE).u32(0)).await?;
        let interfaces = Decoder(&answer).list(|decoder| {
            let (_name, _mac) = (decoder.text()?, decoder.optional_text()?);
            decoder.list(|decoder| {
                let (_kind, address, _prefix) = (decoder.u32()?, decoder.text()?, decoder.u32()?);
                Ok(address)
            })
        })?;
        Ok(interfaces.concat())
    }

    /// Sends a command, in JSON, to the agent in a guest, and waits a short time for its answer.
    pub async fn ask_agent(&self, it: &Domain, command: &str) -> Result<String, Error> {
        const SECONDS: u32 = 2;
        let arguments = with_domain(it).text(command).u32(SECONDS).u32(0).bytes();
        let answer = self.request("QemuDomainAgentCommand", Reads, self.connection.call_of(QEMU, 3, arguments)).await?;
        Ok(Decoder(&answer).optional_text()?.unwrap_or_default())
    }

    pub(super) async fn call(&self, name: &'static str, effect: Effect, procedure: u32, arguments: Encoder) -> Result<Vec<u8>, Error> {
        self.request(name, effect, self.connection.call(procedure, arguments.bytes())).await
    }

    async fn request<T>(&self, name: &'static str, effect: Effect, work: impl Future<Output = Result<T, RpcError>>) -> Result<T, Error> {
        let work = async { work.await.map_err(|error| self.failed(name, error, effect)) };
        self.wire.request(name, effect, work).await
    }

    fn failed(&self, name: &str, error: RpcError, effect: Effect) -> Error {
        match error {
            RpcError::Refused { code: code::ACCESS_DENIED, text } => {
                Error::Refused { code: code::ACCESS_DENIED, text: format!("{text}, {}", rights::of(name)) }
            }
            RpcError::Refused { code, text } => Error::Refused { code, text },
            RpcError::Protocol(what) => Malformed(what).into(),
            RpcError::Closed => {
                let early = if effect == Changes { " before it answered" } else { "" };
                effect.unanswered(format!("{} has closed the connection{early}", self.address)).into()
            }
            RpcError::Silent => effect.unanswered(silent(&self.address)).into(),
        }
    }
}

/// Returns the message for a daemon that does not answer, or a network path that loses its answers.
fn silent(address: &str) -> String {
    format!("{address} has stopped answering: look at the host, then restart its daemon (systemctl restart libvirtd or virtqemud; VMs go on running)")
}

pub(super) fn with_pool(pool: &Pool) -> Encoder {
    Encoder::default().text(&pool.name).uuid(pool.uuid)
}

fn with_volume(pool: &Pool, volume: &Volume) -> Encoder {
    Encoder::default().text(&pool.name).text(&volume.name).text(&volume.key)
}

/// Encodes a domain. The last number would be the id of a running domain; libvirt uses only the UUID.
pub(super) fn with_domain(it: &Domain) -> Encoder {
    Encoder::default().text(&it.name).uuid(it.uuid).u32(u32::MAX)
}

/// Decodes a domain in an answer or event.
pub fn domain(decoder: &mut Decoder) -> Result<Domain, Malformed> {
    let domain = Domain { name: decoder.text()?, uuid: decoder.uuid()? };
    decoder.u32()?;
    Ok(domain)
}

fn volume(decoder: &mut Decoder) -> Result<Volume, Malformed> {
    decoder.text()?;
    Ok(Volume { name: decoder.text()?, key: decoder.text()? })
}

/// Decodes a typed parameter; a value that is not a 32-bit number counts as 0.
fn parameter(decoder: &mut Decoder) -> Result<(String, i32), Malformed> {
    let field = decoder.text()?;
    let value = match decoder.u32()? {
        1 | 2 | 6 => decoder.u32()?.cast_signed(),
        3..=5 => {
            decoder.u64()?;
            0
        }
        7 => {
            decoder.text()?;
            0
        }
        _ => return Err(Malformed("a parameter of an unknown type")),
    };
    Ok((field, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_all_types_are_read() {
        let bytes = Encoder::default().u32(3).text("state.state").u32(1).u32(5).text("x").u32(4).u64(9).text("y").u32(7).text("z").bytes();
        let read = Decoder(&bytes).list(parameter).unwrap();
        assert_eq!(read, [("state.state".to_owned(), 5), ("x".to_owned(), 0), ("y".to_owned(), 0)]);
        assert!(parameter(&mut Decoder(&Encoder::default().text("x").u32(9).u32(1).bytes())).is_err());
    }
}
