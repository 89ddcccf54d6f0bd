//! The listener: TLS with client certificates, or plain text on a loopback address.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::limit::{Limit, Limited};
use super::service::{Service, ServiceHandle};
use super::tls::{self, Identity, TlsError};
use super::wire::cloud_provider_server::CloudProviderServer;
use crate::telemetry::Metrics;

/// The time that a client has for its handshake before the connection is closed.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time between two checks of the certificates.
const RELOAD: Duration = Duration::from_secs(10);
/// The keep-alive interval, which detects a lost peer.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The longest life of a connection: a client of a process that does not lead reaches another process with its next connection.
const CONNECTION: Duration = Duration::from_secs(60);
/// The most connections at the same time: the autoscaler has one, and opens a new one each minute.
pub const CONNECTIONS: usize = 16;
/// The most clients that have not shown their certificate yet.
const HANDSHAKES: usize = 32;
/// The most calls at the same time; the autoscaler sends one after the other.
const CALLS_AT_ONCE: u32 = 64;

/// The address of the server, and its clients.
#[derive(Clone, Debug)]
pub struct Settings {
    pub address: SocketAddr,
    pub security: Security,
}

/// The clients that may call.
#[derive(Clone, Debug)]
pub enum Security {
    /// Clients with a certificate of `ca.crt` in one of these names; the directory has `tls.crt` and `tls.key` too.
    Tls { directory: PathBuf, clients: Vec<String> },
    /// Every program of this machine.
    Loopback,
}

/// Why the server cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("--autoscaler-address={address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "--autoscaler-plaintext: any client that reaches {0} could scale the cluster: use a loopback address, e.g. 127.0.0.1:8086, or --autoscaler-tls"
    )]
    NotLoopback(SocketAddr),
    #[error("--autoscaler-tls: {0}")]
    Tls(#[from] TlsError),
}

/// A bound listener.
pub struct Bound {
    listener: TcpListener,
    identity: Option<(Identity, Arc<[String]>)>,
    reload: Duration,
    connection: Duration,
}

impl Bound {
    /// Binds the address and reads the certificates.
    pub async fn new(settings: &Settings) -> Result<Self, ServeError> {
        let identity = match &settings.security {
            Security::Tls { directory, clients } => Some((Identity::read(directory)?, clients.as_slice().into())),
            Security::Loopback if settings.address.ip().is_loopback() => None,
            Security::Loopback => return Err(ServeError::NotLoopback(settings.address)),
        };
        let address = settings.address;
        let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
        Ok(Self { listener, identity, reload: RELOAD, connection: CONNECTION })
    }

    /// Sets the reload interval, for tests.
    pub fn reload_every(self, reload: Duration) -> Self {
        Self { reload, ..self }
    }

    /// Sets the longest life of a connection, for tests.
    pub fn close_connections_after(self, connection: Duration) -> Self {
        Self { connection, ..self }
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers calls until `end`.
    pub async fn serve(self, handle: ServiceHandle, metrics: Metrics, end: CancellationToken) {
        let service = CloudProviderServer::new(Service::new(handle, metrics));
        let server = Server::builder().http2_keepalive_interval(Some(KEEPALIVE)).max_concurrent_streams(CALLS_AT_ONCE);
        let mut server = server.max_connection_age(self.connection);
        let router = server.add_service(service);
        let done = end.clone().cancelled_owned();
        let result = match self.identity {
            Some((identity, clients)) => {
                tokio::spawn(identity.clone().follow(self.reload, end.clone()));
                router.serve_with_incoming_shutdown(handshakes(self.listener, identity, clients, end), done).await
            }
            None => router.serve_with_incoming_shutdown(plain(self.listener, end), done).await,
        };
        if let Err(error) = result {
            tracing::error!(%error, "cluster-autoscaler is not served any more");
        }
    }
}

/// Streams connections whose client has shown a certificate in an allowed name. Each handshake is a separate task: a slow one delays no other.
/// Clients without a verified certificate take no place of the others.
fn handshakes(
    listener: TcpListener,
    identity: Identity,
    clients: Arc<[String]>,
    end: CancellationToken,
) -> impl Stream<Item = io::Result<Limited<TlsStream<TcpStream>>>> {
    let (sender, receiver) = mpsc::unbounded();
    let (handshakes, connections) = (Limit::new(HANDSHAKES), Limit::new(CONNECTIONS));
    tokio::spawn(accept(listener, end, move |stream, peer| {
        let Some(stream) = handshakes.admit(stream, peer) else { return };
        let acceptor = TlsAcceptor::from(identity.current());
        let (clients, connections, sender) = (clients.clone(), connections.clone(), sender.clone());
        tokio::spawn(async move {
            let (stream, place) = stream.split();
            let accepted = timeout(HANDSHAKE, acceptor.accept(stream)).await;
            drop(place);
            let stream = match accepted {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::warn!(%peer, %error, "refused a client of the autoscaler's service"),
                Err(_) => return tracing::warn!(%peer, "a caller of the autoscaler's service did not finish its handshake"),
            };
            let names = tls::names(stream.get_ref().1.peer_certificates());
            if !names.iter().any(|name| clients.contains(name)) {
                return tracing::warn!(%peer, ?names, allowed = ?clients, "a caller of the autoscaler's service has a certificate in another name");
            }
            if let Some(stream) = connections.admit(stream, peer) {
                drop(sender.unbounded_send(Ok(stream)));
            }
        });
    }));
    receiver
}

fn plain(listener: TcpListener, end: CancellationToken) -> impl Stream<Item = io::Result<Limited<TcpStream>>> {
    let (sender, receiver) = mpsc::unbounded();
    let connections = Limit::new(CONNECTIONS);
    tokio::spawn(accept(listener, end, move |stream, peer| {
        if let Some(stream) = connections.admit(stream, peer) {
            drop(sender.unbounded_send(Ok(stream)));
        }
    }));
    receiver
}

async fn accept(listener: TcpListener, end: CancellationToken, mut take: impl FnMut(TcpStream, SocketAddr) + Send) {
    while let Some(accepted) = end.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                // Answers are small, and the client waits for them.
                let _ = stream.set_nodelay(true);
                take(stream, peer);
            }
            // The most likely cause is too many open files, which is temporary and must not become a hot loop.
            Err(error) => {
                tracing::warn!(%error, "a connection of the autoscaler's service could not be accepted");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
