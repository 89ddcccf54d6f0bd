//! HTTP to a vCenter.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::datastore_file::DatastoreFile;
use crate::hypervisor::DriverError;
use crate::hypervisor::https::{Https, Lost};
use crate::hypervisor::login::Login;

/// The API version of the requests, the oldest supported version; newer servers understand it.
const VERSION: &str = "urn:vim25/6.7";

pub struct Connection {
    server: String,
    uri: Uri,
    https: Https,
}

/// The credentials of a request to the REST API.
pub enum Proof<'a> {
    /// User and password.
    Password(&'a str, &'a SecretString),
    /// The token of a session.
    Token(&'a str),
}

impl Proof<'_> {
    fn header(&self) -> Result<(&'static str, HeaderValue), DriverError> {
        let (name, text) = match self {
            Self::Password(user, password) => {
                ("authorization", format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret()))))
            }
            Self::Token(token) => ("vmware-api-session-id", (*token).to_owned()),
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| DriverError::Transient("the vCenter's session cannot be used".into()))?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// The response of a server.
pub struct Response {
    pub text: String,
    /// The session's cookie, if the request began a session.
    pub cookie: Option<String>,
}

impl Connection {
    /// Sends nothing before the first request.
    pub fn new(server: &str, login: &Login) -> Result<Self, DriverError> {
        let uri = format!("https://{server}/sdk").parse::<Uri>().map_err(|error| {
            DriverError::Invalid(format!("spec.vsphere.server {server:?}: {error}; expected e.g. vcenter.example.com or vcenter.example.com:443"))
        })?;
        Ok(Self { server: server.to_owned(), uri, https: Https::new("vCenter", login)? })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a SOAP envelope.
    pub async fn post(&self, envelope: String, cookie: Option<&str>) -> Result<Response, Lost> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.uri)
            .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
            .header("SOAPAction", VERSION);
        if let Some(cookie) = cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let request = request.body(Full::from(envelope)).map_err(|error| Lost::Before(DriverError::Invalid(error.to_string())))?;
        let answer = self.https.send(&self.server, request).await?;
        let cookies = answer.headers.get_all(header::SET_COOKIE).iter();
        let cookie = cookies.filter_map(|value| value.to_str().ok()?.split(';').next()).find(|value| value.starts_with("vmware_soap_session="));
        let cookie = cookie.map(str::to_owned);
        match answer.status {
            // Faults have the second status.
            StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR => Ok(Response { text: String::from_utf8_lossy(&answer.body).into_owned(), cookie }),
            // The front of a vCenter answers so while its services do not.
            status @ (StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY) => {
                Err(Lost::After(format!("the vCenter {} answers {status}: its services are starting or have ended", self.server)))
            }
            status => Err(Lost::After(format!("{} answers {status}: is it a vCenter?", self.server))),
        }
    }

    /// Sends a request to the REST API.
    pub async fn rest(&self, method: Method, path: &str, proof: Proof<'_>, body: Option<&Value>) -> Result<(StatusCode, Bytes), Lost> {
        let (name, value) = proof.header().map_err(Lost::Before)?;
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.server))
            .header(header::CONTENT_TYPE, "application/json")
            .header(name, value)
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .map_err(|error| Lost::Before(DriverError::Invalid(error.to_string())))?;
        let answer = self.https.send(&self.server, request).await?;
        Ok((answer.status, answer.body))
    }

    /// Writes a file of a datastore; returns the server's answer.
    pub async fn put(&self, datacenter: &str, file: &DatastoreFile, content: Bytes, cookie: &str) -> Result<(StatusCode, String), Lost> {
        let [datacenter, datastore] = [datacenter, &file.datastore].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string());
        let path: Vec<String> = file.path.split('/').map(|part| utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()).collect();
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("https://{}/folder/{}?dcPath={datacenter}&dsName={datastore}", self.server, path.join("/")))
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::COOKIE, cookie)
            .body(Full::from(content))
            .map_err(|error| Lost::Before(DriverError::Invalid(error.to_string())))?;
        let answer = self.https.send(&self.server, request).await?;
        Ok((answer.status, answer.reason.map(|reason| format!("({reason}) ")).unwrap_or_default()))
    }
}
