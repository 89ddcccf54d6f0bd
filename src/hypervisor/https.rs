//! HTTPS to an endpoint: a few connections that stay open, each to a server whose certificate was verified.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::ext::ReasonPhrase;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as HttpError};
use hyper_util::rt::TokioExecutor;

use super::login::Login;
use super::tls;
use super::wire::Effect;
use crate::causes::chain;
use crate::vm::DriverError;

/// The longest answer, in bytes.
const LONGEST: usize = 64 << 20;
/// A server that does not accept a connection in this time is unreachable.
const CONNECT: Duration = Duration::from_secs(10);

pub struct Https {
    /// The product that is expected at the address, for messages.
    what: &'static str,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The answer of a server.
pub struct Answer {
    pub status: StatusCode,
    /// The text after the status, if it differs from the usual text.
    pub reason: Option<String>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why a request got no answer.
#[derive(Debug)]
pub enum Lost {
    /// The request did not reach the server.
    Before(DriverError),
    /// The request may have reached the server.
    After(String),
}

impl Lost {
    /// Returns the error for a request with that effect.
    pub fn error(self, effect: Effect) -> DriverError {
        match self {
            Self::Before(error) => error,
            Self::After(text) => effect.unanswered(text),
        }
    }
}

impl Https {
    /// Creates the client. It sends nothing before the first request.
    pub fn new(what: &'static str, login: &Login) -> Result<Self, DriverError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls::without_certificate(login)?).https_only().enable_http1();
        Ok(Self { what, http: Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp)) })
    }

    /// Sends a request to `server`; the request's URI names the same server.
    pub async fn send(&self, server: &str, mut request: Request<Full<Bytes>>) -> Result<Answer, Lost> {
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(concat!("capw/", env!("CARGO_PKG_VERSION"))));
        let answer = self.http.request(request).await.map_err(|error| self.lost(server, &error))?;
        let (parts, body) = answer.into_parts();
        let reason = parts.extensions.get::<ReasonPhrase>().map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|error| Lost::After(format!("{server} did not send its whole answer: {error}")))?.to_bytes();
        Ok(Answer { status: parts.status, reason, headers: parts.headers, body })
    }

    fn lost(&self, server: &str, error: &HttpError) -> Lost {
        let mut cause = error.source();
        while let Some(it) = cause {
            if let Some(refused) = it.downcast_ref::<io::Error>().and_then(|error| tls::refusal(server, error)) {
                return Lost::Before(refused);
            }
            cause = it.source();
        }
        let text = format!("the {} {server} does not answer: {}. Check address, firewall, and that it runs", self.what, chain(error));
        if error.is_connect() { Lost::Before(DriverError::Unreachable(text)) } else { Lost::After(text) }
    }
}
