//! HTTP to a vCenter: a few connections that are kept open, each to the server whose certificate was verified.

use std::error::Error as _;
use std::io;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as HttpError};
use hyper_util::rt::TokioExecutor;

use crate::hypervisor::DriverError;
use crate::hypervisor::login::Login;
use crate::hypervisor::tls;

/// Longest answer.
const LONGEST: usize = 64 << 20;
/// The oldest version of the API that is spoken; newer servers understand it.
const VERSION: &str = "urn:vim25/6.7";

pub struct Connection {
    server: String,
    uri: Uri,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// What a server sent.
pub struct Response {
    pub text: String,
    /// The session, if it began one.
    pub cookie: Option<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// The request has not arrived.
    Before(DriverError),
    /// It may have arrived.
    After(String),
}

impl Connection {
    /// Nothing is sent before the first request.
    pub fn new(server: &str, login: &Login) -> Result<Self, DriverError> {
        let uri = format!("https://{server}/sdk").parse::<Uri>().map_err(|error| {
            DriverError::Invalid(format!("spec.vsphere.server {server:?}: {error}; expected e.g. vcenter.example.com or vcenter.example.com:443"))
        })?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls::without_certificate(login)?).https_only().enable_http1().build();
        Ok(Self { server: server.to_owned(), uri, http: Client::builder(TokioExecutor::new()).build(connector) })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends an envelope.
    pub async fn post(&self, envelope: String, cookie: Option<&str>) -> Result<Response, Lost> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.uri)
            .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
            .header(header::USER_AGENT, concat!("capw/", env!("CARGO_PKG_VERSION")))
            .header("SOAPAction", VERSION);
        if let Some(cookie) = cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let request = request.body(Full::from(envelope)).map_err(|error| Lost::Before(DriverError::Invalid(error.to_string())))?;
        let answer = self.http.request(request).await.map_err(|error| self.lost(&error))?;
        let status = answer.status();
        let cookies = answer.headers().get_all(header::SET_COOKIE).iter();
        let cookie = cookies.filter_map(|value| value.to_str().ok()?.split(';').next()).find(|value| value.starts_with("vmware_soap_session="));
        let cookie = cookie.map(str::to_owned);
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        let bytes = body.map_err(|error| Lost::After(format!("{} did not send its whole answer: {error}", self.server)))?.to_bytes();
        match status {
            // Faults have the second.
            StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR => Ok(Response { text: String::from_utf8_lossy(&bytes).into_owned(), cookie }),
            // From the front of a vCenter whose services do not answer it.
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY => {
                Err(Lost::After(format!("the vCenter {} answers {status}: its services are starting or have ended", self.server)))
            }
            status => Err(Lost::After(format!("{} answers {status}: is it a vCenter?", self.server))),
        }
    }

    fn lost(&self, error: &HttpError) -> Lost {
        let mut cause = error.source();
        while let Some(it) = cause {
            if let Some(refused) = it.downcast_ref::<io::Error>().and_then(|error| tls::refusal(&self.server, error)) {
                return Lost::Before(refused);
            }
            cause = it.source();
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(it) = cause {
            text = format!("{text}: {it}");
            cause = it.source();
        }
        let text = format!("the vCenter {} does not answer: {text}. Check address, firewall, and that it runs", self.server);
        if error.is_connect() { Lost::Before(DriverError::Unreachable(text)) } else { Lost::After(text) }
    }
}
