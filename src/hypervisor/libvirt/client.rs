//! The requests of this driver, typed. Each is one call of libvirt's protocol (remote_protocol.x in its sources) and passes the wire.

use uuid::Uuid;

use super::rpc::{Connection, RpcError};
use super::xdr::{Decoder, Encoder, Malformed};
use crate::hypervisor::DriverError;
use crate::hypervisor::wire::Wire;

/// Codes of libvirt's errors (`virErrorNumber`).
pub mod code {
    pub const INTERNAL_ERROR: u32 = 1;
    pub const NO_SUPPORT: u32 = 3;
    pub const INVALID_ARG: u32 = 8;
    pub const OPERATION_FAILED: u32 = 9;
    pub const XML_ERROR: u32 = 27;
    pub const OPERATION_DENIED: u32 = 29;
    pub const NO_DOMAIN: u32 = 42;
    pub const AUTH_FAILED: u32 = 45;
    pub const NO_STORAGE_POOL: u32 = 49;
    pub const NO_STORAGE_VOL: u32 = 50;
    pub const OPERATION_INVALID: u32 = 55;
    pub const CONFIG_UNSUPPORTED: u32 = 67;
    pub const AUTH_CANCELLED: u32 = 79;
    pub const AUTH_UNAVAILABLE: u32 = 80;
    pub const ACCESS_DENIED: u32 = 88;
    pub const STORAGE_VOL_EXIST: u32 = 90;
}

/// Why a request failed.
#[derive(Debug)]
pub enum Error {
    /// The daemon's answer.
    Refused {
        code: u32,
        text: String,
    },
    Driver(DriverError),
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<Malformed> for Error {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Driver(DriverError::Transient(format!("libvirt's answer cannot be read: {what}")))
    }
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        match error {
            Error::Driver(error) => error,
            Error::Refused { code, text } => refused(code, text),
        }
    }
}

fn refused(code: u32, text: String) -> DriverError {
    let text = format!("libvirt says: {text}");
    if text.contains("Cannot allocate memory") || text.contains("No space left on device") {
        return DriverError::Capacity(format!("{text}. Remove machines, or add memory or disk space to the host"));
    }
    match code {
        code::AUTH_FAILED | code::AUTH_CANCELLED | code::AUTH_UNAVAILABLE => DriverError::Auth(text),
        code::OPERATION_DENIED | code::ACCESS_DENIED => DriverError::Denied(text),
        code::XML_ERROR | code::CONFIG_UNSUPPORTED | code::INVALID_ARG | code::NO_SUPPORT => DriverError::Invalid(text),
        _ => DriverError::Transient(text),
    }
}

/// The answer, or `None` if the daemon refused with that code.
pub fn unless<T>(result: Result<T, Error>, expected: u32) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Refused { code, .. }) if code == expected => Ok(None),
        Err(error) => Err(error),
    }
}

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
    /// The path, for pools of files.
    pub key: String,
}

/// What the host has.
pub struct Node {
    pub memory_kib: u64,
    pub cpus: u32,
}

/// A connection with the wire that its requests pass.
pub struct Client {
    connection: Connection,
    wire: Wire,
    address: String,
}

#[derive(Clone, Copy)]
enum Effect {
    Reads,
    Changes,
}
use Effect::{Changes, Reads};

impl Client {
    pub fn new(connection: Connection, wire: Wire, address: &str) -> Self {
        Self { connection, wire, address: address.to_owned() }
    }

    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// The ways in which the daemon wants to know who calls: 0 is none.
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
        // The model: 32 characters, each encoded as a number.
        decoder.take(32 * 4)?;
        Ok(Node { memory_kib: decoder.u64()?, cpus: decoder.u32()? })
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

    pub async fn networks(&self) -> Result<Vec<String>, Error> {
        let answer = self.call("ConnectListAllNetworks", Reads, 283, Encoder::default().u32(1).u32(0)).await?;
        Ok(Decoder(&answer).list(|decoder| {
            let name = decoder.text()?;
            decoder.uuid()?;
            Ok(name)
        })?)
    }

    /// The volumes of a pool, by name.
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

    pub async fn upload(&self, pool: &Pool, volume: &Volume, data: &[u8]) -> Result<(), Error> {
        let length = u64::try_from(data.len()).unwrap_or_default();
        let arguments = with_volume(pool, volume).u64(0).u64(length).u32(0).bytes();
        let work = async { self.connection.upload(208, arguments, data).await.map_err(|error| self.failed(error, Changes)) };
        self.wire.change("StorageVolUpload", work).await
    }

    /// What a volume holds from `offset` on.
    pub async fn download(&self, pool: &Pool, volume: &Volume, offset: u64) -> Result<Vec<u8>, Error> {
        let arguments = with_volume(pool, volume).u64(offset).u64(0).u32(0).bytes();
        let work = async { self.connection.download(209, arguments).await.map_err(|error| self.failed(error, Reads)) };
        self.wire.read("StorageVolDownload", work).await
    }

    pub async fn delete_volume(&self, pool: &Pool, volume: &Volume) -> Result<(), Error> {
        self.call("StorageVolDelete", Changes, 94, with_volume(pool, volume).u32(0)).await.map(|_| ())
    }

    /// Every domain with its state, by one request.
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

    /// The domain is found by its UUID.
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

    /// Asks the guest to shut down.
    pub async fn shutdown(&self, it: &Domain) -> Result<(), Error> {
        self.call("DomainShutdownFlags", Changes, 258, with_domain(it).u32(0)).await.map(|_| ())
    }

    /// Cuts the power.
    pub async fn destroy(&self, it: &Domain) -> Result<(), Error> {
        self.call("DomainDestroyFlags", Changes, 234, with_domain(it).u32(0)).await.map(|_| ())
    }

    /// With what belongs to it: a saved state, snapshots, the variables of its firmware.
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

    async fn call(&self, name: &'static str, effect: Effect, procedure: u32, arguments: Encoder) -> Result<Vec<u8>, Error> {
        let work = async { self.connection.call(procedure, arguments.bytes()).await.map_err(|error| self.failed(error, effect)) };
        match effect {
            Reads => self.wire.read(name, work).await,
            Changes => self.wire.change(name, work).await,
        }
    }

    fn failed(&self, error: RpcError, effect: Effect) -> Error {
        match (error, effect) {
            (RpcError::Refused { code, text }, _) => Error::Refused { code, text },
            (RpcError::Protocol(what), _) => Malformed(what).into(),
            (RpcError::Closed, Reads) => DriverError::Unreachable(format!("{} has closed the connection", self.address)).into(),
            (RpcError::Closed, Changes) => DriverError::Unknown(format!("{} has closed the connection before it answered", self.address)).into(),
        }
    }
}

fn with_pool(pool: &Pool) -> Encoder {
    Encoder::default().text(&pool.name).uuid(pool.uuid)
}

fn with_volume(pool: &Pool, volume: &Volume) -> Encoder {
    Encoder::default().text(&pool.name).text(&volume.name).text(&volume.key)
}

/// The number is that of a running domain; libvirt goes by the UUID.
fn with_domain(it: &Domain) -> Encoder {
    Encoder::default().text(&it.name).uuid(it.uuid).u32(u32::MAX)
}

fn domain(decoder: &mut Decoder) -> Result<Domain, Malformed> {
    let domain = Domain { name: decoder.text()?, uuid: decoder.uuid()? };
    decoder.u32()?;
    Ok(domain)
}

fn volume(decoder: &mut Decoder) -> Result<Volume, Malformed> {
    decoder.text()?;
    Ok(Volume { name: decoder.text()?, key: decoder.text()? })
}

/// A typed parameter; those that are no number of 32 bits are read and count as 0.
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
    fn what_libvirt_says_has_a_class() {
        let class = |code: u32, text: &str| DriverError::from(Error::Refused { code, text: text.into() }).label();
        for (code, text, expected) in [
            (code::INTERNAL_ERROR, "qemu: cannot set up guest memory 'pc.ram': Cannot allocate memory", "capacity"),
            (38, "cannot write: No space left on device", "capacity"),
            (code::AUTH_FAILED, "authentication failed", "auth"),
            (code::ACCESS_DENIED, "access denied: 'QEMU' denied 'domain:write'", "denied"),
            (code::OPERATION_DENIED, "operation denied: read only access", "denied"),
            (code::XML_ERROR, "XML error", "invalid"),
            (code::OPERATION_FAILED, "operation failed", "transient"),
        ] {
            assert_eq!(class(code, text), expected, "{text}");
        }
    }

    #[test]
    fn parameters_of_all_types_are_read() {
        let bytes = Encoder::default().u32(3).text("state.state").u32(1).u32(5).text("x").u32(4).u64(9).text("y").u32(7).text("z").bytes();
        let read = Decoder(&bytes).list(parameter).unwrap();
        assert_eq!(read, [("state.state".to_owned(), 5), ("x".to_owned(), 0), ("y".to_owned(), 0)]);
        assert!(parameter(&mut Decoder(&Encoder::default().text("x").u32(9).u32(1).bytes())).is_err());
    }
}
