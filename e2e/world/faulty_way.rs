//! A faulty way to an API server: a proxy that loses requests and replies, answers with errors, and cuts or silences watches. The
//! faults follow from a seed. The proxy must not change data that passes: what arrives is what was sent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::control_plane::ControlPlane;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Failure>>;

/// A fault of a request that is no watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The connection ends before the request has arrived.
    RequestLost,
    /// The connection ends after the request took effect.
    ReplyLost,
    InternalError,
    Unavailable,
    TooManyRequests,
    Conflict,
    /// 504, after the request took effect.
    TimeoutAfterEffect,
    Late,
    /// The connection stays open and nothing comes.
    NoAnswer,
    /// A proxy answers in the server's place.
    NoJson,
    /// The response never ends.
    Endless,
    /// The response breaks off.
    Half,
}

/// The relative weight of each fault.
const FAULTS: [(Fault, u32); 12] = [
    (Fault::RequestLost, 20),
    (Fault::ReplyLost, 20),
    (Fault::InternalError, 10),
    (Fault::Unavailable, 10),
    (Fault::TooManyRequests, 8),
    (Fault::Conflict, 10),
    (Fault::TimeoutAfterEffect, 10),
    (Fault::Late, 10),
    (Fault::NoAnswer, 1),
    (Fault::NoJson, 3),
    (Fault::Endless, 1),
    (Fault::Half, 4),
];

/// A fault of a running watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WatchFault {
    Cut,
    /// The watch reports that its version is too old.
    Expired,
    /// The watch stays open and nothing comes any more.
    Silent,
    NoJson,
}

const WATCH_FAULTS: [(WatchFault, u32); 4] = [(WatchFault::Cut, 6), (WatchFault::Expired, 3), (WatchFault::Silent, 2), (WatchFault::NoJson, 1)];

/// The proxy; it ends when dropped.
pub struct FaultyWay {
    port: u16,
    state: Arc<State>,
    task: AbortHandle,
}

struct State {
    server: Client,
    random: Mutex<StdRng>,
    /// The failing requests of a thousand.
    share: AtomicU32,
    requests: AtomicU64,
    done: Mutex<BTreeMap<String, u64>>,
}

impl FaultyWay {
    /// A proxy to the API server of `cp`, with its certificate. No fault occurs before [`FaultyWay::set`].
    pub async fn to(cp: &ControlPlane, seed: u64) -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let admin = Kubeconfig::from_yaml(&read(cp.kubeconfig())).expect("a kubeconfig");
        let mut config = Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await.expect("a usable kubeconfig");
        // The client's credentials are in the request that passes.
        config.auth_info = Default::default();
        config.default_retry = false;
        let state = Arc::new(State {
            server: Client::try_from(config).expect("a client"),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            share: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            done: Mutex::default(),
        });
        let acceptor = acceptor(&cp.directory().join("pki"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port for a proxy");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(accept(listener, acceptor, state.clone())).abort_handle();
        Self { port, state, task }
    }

    /// The kubeconfig `direct`, but with this proxy as the server.
    pub fn kubeconfig(&self, direct: &str) -> String {
        let port = direct.split("https://127.0.0.1:").nth(1).map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        let port = port.expect("a kubeconfig for 127.0.0.1");
        direct.replace(&format!("https://127.0.0.1:{port}"), &format!("https://127.0.0.1:{}", self.port))
    }

    /// From now on `share` of a thousand requests fail, and watches do as often.
    pub fn set(&self, share: u32) {
        self.state.share.store(share, Ordering::Relaxed);
    }

    /// The number of requests, and of each fault.
    pub fn told(&self) -> (u64, BTreeMap<String, u64>) {
        (self.state.requests.load(Ordering::Relaxed), self.state.done.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Drop for FaultyWay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(pki: &Path) -> TlsAcceptor {
    let certificates = CertificateDer::pem_file_iter(pki.join("apiserver.crt")).expect("apiserver.crt");
    let chain = certificates.collect::<Result<Vec<_>, _>>().expect("certificates in apiserver.crt");
    let key = PrivateKeyDer::from_pem_file(pki.join("apiserver.key")).expect("apiserver.key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let config = config.expect("TLS").with_no_client_auth().with_single_cert(chain, key).expect("a pair of certificate and key");
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    // The connections are dropped with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        connections.spawn(serve(stream, acceptor.clone(), state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| pass(state.clone(), request));
    // An error here is an intended fault, or a client that has disconnected.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Passes one request on, or applies a fault. An error ends the connection without a response.
async fn pass(state: Arc<State>, request: Request<Incoming>) -> Result<Answer, Failure> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let agent = request.headers().get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    // Cluster API core uses the same kubeconfig, but is not under test here.
    let is_judged = !agent.contains("cluster-api");
    let fault = if is_judged { state.draw(&FAULTS) } else { None };
    match fault {
        Some(Fault::RequestLost) => return Err("the request was lost".into()),
        Some(Fault::NoAnswer) => pending().await,
        Some(Fault::InternalError) => return Ok(refusal(500, "InternalError")),
        Some(Fault::Unavailable) => return Ok(refusal(503, "ServiceUnavailable")),
        Some(Fault::TooManyRequests) => return Ok(refusal(429, "TooManyRequests")),
        Some(Fault::Conflict) if !request.method().is_safe() => return Ok(refusal(409, "Conflict")),
        Some(Fault::Late) => sleep(state.up_to(Duration::from_secs(3))).await,
        Some(Fault::NoJson) => return Ok(answer(200, full("<html>a page of something on the way</html>"))),
        Some(Fault::Endless) => return Ok(answer(200, Endless.boxed_unsync())),
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let answered = state.server.send(Request::from_parts(parts, Body::from(body))).await?;
    match fault {
        Some(Fault::ReplyLost) => {
            answered.into_body().collect().await?;
            return Err("the reply was lost".into());
        }
        Some(Fault::TimeoutAfterEffect) => return Ok(refusal(504, "Timeout")),
        Some(Fault::Half) if !is_watch => {
            let (parts, body) = answered.into_parts();
            let whole = body.collect().await?.to_bytes();
            let half = whole.slice(..whole.len() / 2);
            return Ok(Response::from_parts(parts, Half(Some(half)).boxed_unsync()));
        }
        _ => {}
    }
    let (parts, body) = answered.into_parts();
    let body = body.map_err(Failure::from);
    if !is_watch || !is_judged {
        return Ok(Response::from_parts(parts, body.boxed_unsync()));
    }
    // Each watch may fail after this time; whether it does is decided then.
    let after = state.up_to(Duration::from_secs(30));
    let watched = Watched { inner: body.boxed_unsync(), state, turn: Box::pin(sleep(after)), fault: None };
    Ok(Response::from_parts(parts, watched.boxed_unsync()))
}

impl State {
    /// A fault, if the random number is below the share.
    fn draw<T: Copy + std::fmt::Debug, const N: usize>(&self, faults: &[(T, u32); N]) -> Option<T> {
        let share = self.share.load(Ordering::Relaxed);
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if !random.random_ratio(share.min(1000), 1000) {
            return None;
        }
        let mut turn = random.random_range(0..faults.iter().map(|(_, weight)| weight).sum());
        let (fault, _) = faults.iter().find(|(_, weight)| {
            let is_it = turn < *weight;
            turn = turn.saturating_sub(*weight);
            is_it
        })?;
        *self.done.lock().unwrap_or_else(PoisonError::into_inner).entry(format!("{fault:?}")).or_default() += 1;
        Some(*fault)
    }

    fn up_to(&self, most: Duration) -> Duration {
        most.mul_f64(self.random.lock().unwrap_or_else(PoisonError::into_inner).random_range(0.0..1.0))
    }
}

fn answer(code: u16, body: http_body_util::combinators::UnsyncBoxBody<Bytes, Failure>) -> Answer {
    Response::builder().status(code).header("content-type", "application/json").body(body).expect("a response")
}

fn full(text: impl Into<Bytes>) -> http_body_util::combinators::UnsyncBoxBody<Bytes, Failure> {
    http_body_util::Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The response of an API server that refuses a request.
fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "a fault on the way", "reason": reason, "code": code,
        "details": {"retryAfterSeconds": 1},
    });
    let mut refused = answer(code, full(status.to_string()));
    if code == 429 {
        refused.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
    }
    refused
}

/// Endless blanks, as fast as the client reads them, up to the cost limit of a test.
struct Endless;

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        static BLANKS: [u8; 1 << 16] = [b' '; 1 << 16];
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&BLANKS)))))
    }
}

/// The beginning of a response; then the connection ends.
struct Half(Option<Bytes>);

impl HttpBody for Half {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        Poll::Ready(Some(self.0.take().map(Frame::data).ok_or_else(|| "the rest was lost".into())))
    }
}

/// A watch that may fail later.
struct Watched {
    inner: http_body_util::combinators::UnsyncBoxBody<Bytes, Failure>,
    state: Arc<State>,
    turn: Pin<Box<Sleep>>,
    fault: Option<WatchFault>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let line = |text: serde_json::Value| Frame::data(Bytes::from(format!("{text}\n")));
        match self.fault {
            Some(WatchFault::Silent) => return Poll::Pending,
            Some(_) => return Poll::Ready(Some(Err("the watch was cut".into()))),
            None => {}
        }
        while self.turn.as_mut().poll(cx).is_ready() {
            let due = Instant::now() + Duration::from_secs(5) + self.state.up_to(Duration::from_secs(25));
            self.turn.set(sleep_until(due));
            // Even when every second request fails, a watch lasts for a while.
            self.fault = self.state.draw(&WATCH_FAULTS);
            match self.fault {
                None => {}
                Some(WatchFault::Cut) => return Poll::Ready(Some(Err("the watch was cut".into()))),
                Some(WatchFault::Silent) => return Poll::Pending,
                Some(WatchFault::NoJson) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"<html>\n"))))),
                Some(WatchFault::Expired) => {
                    let status =
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410});
                    return Poll::Ready(Some(Ok(line(json!({"type": "ERROR", "object": status})))));
                }
            }
        }
        Poll::Ready(ready!(Pin::new(&mut self.inner).poll_frame(cx)))
    }
}
