//! `/metrics`: over TLS, for clients that the API server authorizes. In plain text for everyone only if that was requested.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// The time that a client has for its handshake before the connection is closed.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The most handshakes at the same time.
const HANDSHAKES: usize = 32;

/// Why a client gets no metrics: it lacks the right, or the right could not be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client has no token, or an invalid one.
    Unauthorized,
    Forbidden,
    /// Too many other clients have requests; the API server was not queried.
    Busy,
    /// The API server does not answer.
    Unavailable,
}

/// Authorizes a client by its token and the path.
pub type Authorize = Arc<dyn Fn(SecretString, String) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>;

fn router(metrics: Metrics) -> Router {
    let text = move || async move {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], metrics.text()).into_response()
    };
    Router::new().route("/metrics", get(text))
}

/// Returns a router for the clients that `authorize` accepts.
fn guarded(metrics: Metrics, authorize: Authorize) -> Router {
    router(metrics).layer(from_fn(move |request: Request, next: Next| {
        let authorize = authorize.clone();
        async move {
            let Some(token) = bearer(request.headers()) else { return refuse(Refusal::Unauthorized) };
            match authorize(token, request.uri().path().to_owned()).await {
                Ok(()) => next.run(request).await,
                Err(refusal) => refuse(refusal),
            }
        }
    }))
}

fn bearer(headers: &HeaderMap) -> Option<SecretString> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned().into())
}

fn refuse(refusal: Refusal) -> Response {
    let (code, text) = match refusal {
        Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "give the token of a ServiceAccount: Authorization: Bearer TOKEN\n"),
        Refusal::Forbidden => (StatusCode::FORBIDDEN, "the account may not get /metrics: bind it to the ClusterRole capw-system-metrics-reader\n"),
        Refusal::Busy => (StatusCode::TOO_MANY_REQUESTS, "too many clients ask at the same time; ask again\n"),
        Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "the API server does not say who you are; ask again\n"),
    };
    (code, text).into_response()
}

/// Serves the metrics until `stop`: over TLS with `authorize`, to everyone without it.
pub async fn serve(listener: TcpListener, metrics: Metrics, authorize: Option<Authorize>, stop: CancellationToken) -> io::Result<()> {
    let Some(authorize) = authorize else {
        return axum::serve(listener, router(metrics)).with_graceful_shutdown(stop.cancelled_owned()).await;
    };
    let listener = TlsListener::new(listener, own_certificate()?, &stop)?;
    axum::serve(listener, guarded(metrics, authorize)).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// Creates a self-signed certificate, a new one at each start.
fn own_certificate() -> io::Result<ServerConfig> {
    let own = rcgen::generate_simple_self_signed(vec!["capw".to_owned(), "localhost".to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_no_client_auth();
    let mut config = builder.with_single_cert(vec![own.cert.der().clone()], key).map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts connections after their handshake. Each handshake is a separate task: a slow one delays no other.
struct TlsListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    fn new(listener: TcpListener, config: ServerConfig, stop: &CancellationToken) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, accepted) = mpsc::channel(HANDSHAKES);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, acceptor, sender)));
        Ok(Self { address, accepted })
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The most likely cause is too many open files, which is temporary and must not become a hot loop.
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics could not be accepted");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(sender.send((stream, peer)).await),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "refused a client of the metrics"),
                Err(_) => tracing::debug!(%peer, "a client of the metrics did not finish its handshake"),
            }
            drop(place);
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The listener was stopped, and so is the server.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use secrecy::ExposeSecret;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower::ServiceExt;

    /// Accepts the token `good`, forbids `poor`, is busy for `many`, and unavailable for `late`.
    fn authorize() -> Authorize {
        Arc::new(|token, path| {
            assert_eq!(path, "/metrics");
            let answer = match token.expose_secret() {
                "good" => Ok(()),
                "poor" => Err(Refusal::Forbidden),
                "many" => Err(Refusal::Busy),
                "late" => Err(Refusal::Unavailable),
                _ => Err(Refusal::Unauthorized),
            };
            Box::pin(async move { answer })
        })
    }

    #[tokio::test]
    async fn only_those_whom_the_api_server_lets_in_read_metrics() {
        for (header, expected) in [
            (None, 401),
            (Some("Bearer good"), 200),
            (Some("bearer good"), 200),
            (Some("Bearer poor"), 403),
            (Some("Bearer many"), 429),
            (Some("Bearer late"), 503),
            (Some("Bearer x"), 401),
            (Some("Bearer "), 401),
            (Some("Basic good"), 401),
        ] {
            let mut request = axum::http::Request::get("/metrics");
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            let answer = guarded(Metrics::default(), authorize()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status().as_u16(), expected, "{header:?}");
            let body = String::from_utf8(to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap();
            assert_eq!(body.ends_with("# EOF\n"), expected == 200, "{body}");
        }
    }

    async fn bound() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        String::from_utf8_lossy(&said).into_owned()
    }

    #[tokio::test]
    async fn plain_text_is_answered_only_if_it_was_asked_for() {
        let stop = CancellationToken::new();
        for (authorize, expected) in [(None, true), (Some(authorize()), false)] {
            let (listener, address) = bound().await;
            tokio::spawn(serve(listener, Metrics::default(), authorize, stop.clone()));
            assert_eq!(ask(address).await.contains("# EOF"), expected);
        }
        stop.cancel();
    }

    #[tokio::test]
    async fn tls_reaches_the_metrics() {
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
        let own = rcgen::generate_simple_self_signed(vec!["capw".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let server = server.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let (listener, address) = bound().await;
        let stop = CancellationToken::new();
        let listener = TlsListener::new(listener, server, &stop).unwrap();
        tokio::spawn(async move { axum::serve(listener, guarded(Metrics::default(), authorize())).await });
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client.with_root_certificates(roots).with_no_client_auth()));
        let name = ServerName::try_from("capw").unwrap();
        let mut stream = connector.connect(name, TcpStream::connect(address).await.unwrap()).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nAuthorization: Bearer good\r\n\r\n").await.unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        assert!(String::from_utf8_lossy(&said).contains("# EOF"), "{}", String::from_utf8_lossy(&said));
        stop.cancel();
    }
}
