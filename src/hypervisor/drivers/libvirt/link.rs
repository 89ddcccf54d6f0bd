//! The connection to a daemon: created when a call needs it, shared by all calls, recreated when it has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use russh::client::Handle;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::address::{Address, Transport};
use super::client::{Client, Pool};
use super::disks::Storage;
use super::events::Event;
use super::refusal::{Error, code};
use super::rpc::{Connection, OnEvent};
use super::told::Told;
use crate::hypervisor::DriverError;
use crate::hypervisor::login::Login;
use crate::hypervisor::ssh::{Place, Ssh, Trust, Tunnel};
use crate::hypervisor::tls::{Tls, refusal};
use crate::hypervisor::wire::Wire;
use crate::vm::Thing;

/// The time limit for a connection, before the first request.
const CONNECT: Duration = Duration::from_secs(15);

/// The access to one daemon, and to the pool that holds its VMs.
pub struct Link {
    text: String,
    uri: String,
    way: Way,
    pool: String,
    wire: Wire,
    told: Arc<Told>,
    current: Mutex<Current>,
}

enum Way {
    Unix(PathBuf),
    Tls { host: String, port: u16, tls: Tls },
    Ssh { user: String, host: String, port: u16, socket: String, ssh: Ssh },
}

#[derive(Default)]
struct Current {
    open: Option<Arc<Session>>,
    /// The last failed attempt, and when it ended.
    failed: Option<(Instant, DriverError)>,
    /// The pool of the first connection: a pool with another UUID is on another host, or was recreated.
    known: Option<Uuid>,
}

/// An open connection.
pub struct Session {
    pub client: Client,
    pub pool: Pool,
    pub storage: Storage,
    /// The SSH connection that carries this connection, as long as it lasts.
    _tunnel: Option<Handle<Trust>>,
}

impl Link {
    pub fn new(text: &str, pool: &str, login: &Login, wire: Wire, told: Arc<Told>) -> Result<Self, DriverError> {
        let Address { transport, uri } = Address::parse(text)?;
        let way = match transport {
            Transport::Unix(path) => Way::Unix(path),
            Transport::Tls { host, port } => Way::Tls { host, port, tls: Tls::new(login)? },
            Transport::Ssh { user, host, port, socket } => Way::Ssh { user, host, port, socket, ssh: Ssh::new(login)? },
        };
        Ok(Self { text: text.to_owned(), uri, way, pool: pool.to_owned(), wire, told, current: Mutex::default() })
    }

    /// Returns the connection. A caller that waits for another caller's attempt shares its failure: otherwise each would wait for its own time limit.
    pub async fn session(&self) -> Result<Arc<Session>, DriverError> {
        let asked = Instant::now();
        let mut current = self.current.lock().await;
        if let Some(open) = current.open.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        if let Some((_, error)) = current.failed.as_ref().filter(|(ended, _)| *ended > asked) {
            return Err(error.clone());
        }
        let opened = self.attempt(&mut current).await;
        current.failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    async fn attempt(&self, current: &mut Current) -> Result<Arc<Session>, DriverError> {
        current.open = None;
        let session = Arc::new(self.open().await?);
        let known = *current.known.get_or_insert(session.pool.uuid);
        if known != session.pool.uuid {
            return Err(DriverError::EndpointChanged(format!(
                "pool {} of {} has the UUID {}, and had {known} before: another host answers, or the pool was recreated. Correct the address; if the old pool is gone for good, with every VM in it, remove status.endpointID of the WindowsHypervisor",
                self.pool, self.text, session.pool.uuid
            )));
        }
        current.open = Some(session.clone());
        Ok(session)
    }

    /// Drops the connection, so that the next call creates one.
    pub async fn end(&self) {
        self.current.lock().await.open = None;
    }

    async fn open(&self) -> Result<Session, DriverError> {
        let connected = timeout(CONNECT, self.connect()).await;
        let (connection, tunnel) = connected.unwrap_or_else(|_| {
            let limit = CONNECT.as_secs();
            Err(DriverError::Unreachable(format!(
                "{} takes no connection within {limit} s: check address and firewall, and that the host and its daemon answer others",
                self.text
            )))
        })?;
        let client = Client::new(connection, self.wire.clone(), &self.text);
        let wanted = client.auth_list().await?;
        if !wanted.is_empty() && !wanted.contains(&0) {
            return Err(DriverError::Auth(format!(
                "{} wants a login that CAPW does not have (kinds {wanted:?} of libvirt's remote_auth_type): allow its socket to CAPW's user (auth_unix_rw = \"none\" in libvirtd.conf)",
                self.text
            )));
        }
        client.open(&self.uri).await?;
        client.follow_domains().await?;
        self.told.missed();
        let pool = match client.pool(&self.pool).await {
            Err(Error::Refused { code: code::NO_STORAGE_POOL, .. }) => {
                let text = format!(
                    "{} has no storage pool {:?}: correct spec.libvirt.pool of the WindowsHypervisor, or define the pool",
                    self.text, self.pool
                );
                return Err(DriverError::Missing { thing: Thing::Placement, text });
            }
            found => found?,
        };
        let storage = Storage::read(&client.pool_xml(&pool).await?)
            .ok_or_else(|| DriverError::Transient(format!("the definition of storage pool {} on {} cannot be read", self.pool, self.text)))?;
        Ok(Session { client, pool, storage, _tunnel: tunnel })
    }

    /// Creates a connection, and returns it with the SSH connection that carries it.
    async fn connect(&self) -> Result<(Connection, Option<Handle<Trust>>), DriverError> {
        let told = self.told.clone();
        let on_event: OnEvent = Box::new(move |procedure, body| {
            Event::read(procedure, body).iter().for_each(|event| told.take(event));
        });
        match &self.way {
            Way::Tls { host, port, tls } => {
                let mut stream = tls.connect(host, *port).await?;
                // The daemon accepts our certificate by sending one byte.
                let refused = || {
                    DriverError::Auth(format!("{host} does not accept our certificate: look at tls_allowed_dn_list and ca_file in its libvirtd.conf"))
                };
                match stream.read_u8().await {
                    Ok(1) => Ok((Connection::new(stream, on_event), None)),
                    Ok(_) => Err(refused()),
                    Err(error) => Err(refusal(host, &error).unwrap_or_else(refused)),
                }
            }
            Way::Ssh { user, host, port, socket, ssh } => {
                let Tunnel { stream, session } = ssh.connect(&Place { user, host, port: *port }, socket).await?;
                Ok((Connection::new(stream, on_event), Some(session)))
            }
            Way::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| {
                    DriverError::Unreachable(format!(
                        "libvirt does not answer at {}: {error}. Check that the daemon runs and that CAPW may open its socket",
                        path.display()
                    ))
                })?;
                Ok((Connection::new(stream, on_event), None))
            }
        }
    }
}
