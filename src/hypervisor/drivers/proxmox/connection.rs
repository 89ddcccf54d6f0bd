//! HTTP to the servers of a cluster: each server can answer for all nodes, so the driver tries the next server when one does not answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use form_urlencoded::Serializer;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use secrecy::zeroize::Zeroize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::fault::{Error, Refusal};
use crate::hypervisor::DriverError;
use crate::hypervisor::https::{Answer, Https, Lost};
use crate::hypervisor::login::Login;
use crate::hypervisor::wire::Effect;

/// The keys of the Secret.
const USER: &str = "username";
const PASSWORD: &str = "password";
pub const PORT: u16 = 8006;
/// The time limit of a read, after which the next server is tried.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Connection {
    https: Https,
    /// The servers with their ports.
    servers: Vec<String>,
    /// The index of the server that answered last.
    current: AtomicUsize,
    patience: Duration,
    /// The token, marked as a secret so that nothing prints it.
    authorization: HeaderValue,
}

/// The parameters of a request.
pub type Form = Vec<(String, String)>;

/// A request to the API.
pub struct Call {
    pub method: Method,
    /// The path below `/api2/json`.
    pub path: String,
    pub body: Body,
}

pub enum Body {
    None,
    Form(Form),
    /// A file for a storage.
    Image {
        name: String,
        bytes: Bytes,
    },
}

impl Connection {
    /// Creates the connection. It sends nothing before the first call.
    pub fn new(servers: &[String], login: &Login) -> Result<Self, DriverError> {
        let servers = servers.iter().map(|server| with_port(server)).collect();
        let https = Https::new("Proxmox VE server", login)?;
        Ok(Self { https, servers, current: AtomicUsize::new(0), patience: PATIENCE, authorization: token(login)? })
    }

    /// Returns the server that answered last.
    pub fn server(&self) -> &str {
        self.servers.get(self.current.load(Ordering::Relaxed)).map(String::as_str).unwrap_or_default()
    }

    /// Sends a call and returns `data` of the answer.
    pub async fn send(&self, call: &Call, effect: Effect) -> Result<Value, Error> {
        let (first, count) = (self.current.load(Ordering::Relaxed), self.servers.len());
        let mut lost = Lost::Before(DriverError::Invalid("spec.proxmox.servers names no server".into()));
        for index in (0..count).map(|offset| (first + offset) % count) {
            let Some(server) = self.servers.get(index) else { break };
            let answer = match effect {
                Effect::Reads => timeout(self.patience, self.at(server, call)).await.unwrap_or_else(|_| Err(self.late(server))),
                Effect::Changes => self.at(server, call).await,
            };
            lost = match answer {
                Ok(answer) => match read(server, answer) {
                    Ok(result) => {
                        self.current.store(index, Ordering::Relaxed);
                        return result;
                    }
                    Err(lost) => lost,
                },
                Err(lost) => lost,
            };
            // A change that may have arrived must not be sent a second time.
            if matches!((&lost, effect), (Lost::After(_), Effect::Changes)) {
                break;
            }
        }
        Err(lost.error(effect).into())
    }

    fn late(&self, server: &str) -> Lost {
        Lost::After(format!("{server} did not answer within {} s: check that it runs and can be reached", self.patience.as_secs()))
    }

    async fn at(&self, server: &str, call: &Call) -> Result<Answer, Lost> {
        let request = Request::builder()
            .method(&call.method)
            .uri(format!("https://{server}/api2/json{}", call.path))
            .header(header::AUTHORIZATION, &self.authorization);
        let (request, body) = match &call.body {
            Body::None => (request, Bytes::new()),
            Body::Form(values) => (
                request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded"),
                Serializer::new(String::new()).extend_pairs(values).finish().into(),
            ),
            Body::Image { name, bytes } => {
                let (boundary, body) = multipart(name, bytes);
                (request.header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}")), body)
            }
        };
        let invalid = |error: http::Error| Lost::Before(DriverError::Invalid(format!("spec.proxmox.servers {server:?}: {error}")));
        self.https.send(server, request.body(Full::from(body)).map_err(invalid)?).await
    }
}

fn with_port(server: &str) -> String {
    let has_port = server
        .rsplit_once(':')
        .is_some_and(|(host, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')));
    if has_port { server.to_owned() } else { format!("{server}:{PORT}") }
}

fn token(login: &Login) -> Result<HeaderValue, DriverError> {
    let given = |key: &str| {
        let text = std::str::from_utf8(login.required(key)?).map_err(|_| DriverError::Auth(format!("{} is no text", login.place(key))))?;
        Ok::<_, DriverError>(text.trim())
    };
    let (user, secret) = (given(USER)?, given(PASSWORD)?);
    if !user.split_once('!').is_some_and(|(user, name)| user.contains('@') && !name.is_empty()) {
        return Err(DriverError::Auth(format!(
            "{} must be the full id of an API token, like capw@pve!capw: a user's own password is not used",
            login.place(USER)
        )));
    }
    let mut text = format!("PVEAPIToken={user}={secret}");
    let value = HeaderValue::from_str(&text);
    text.zeroize();
    let mut value = value.map_err(|_| DriverError::Auth(format!("{} holds characters that no token has", login.place(PASSWORD))))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads the answer of a server, if it is from the API; otherwise the request may or may not have been carried out.
fn read(server: &str, answer: Answer) -> Result<Result<Value, Error>, Lost> {
    let status = answer.status.as_u16();
    let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
    if answer.status.is_success() {
        return match body {
            Some(mut body) => Ok(Ok(body.get_mut("data").map(Value::take).unwrap_or_default())),
            None => Err(Lost::After(format!("the answer of {server} cannot be read: is it a Proxmox VE server?"))),
        };
    }
    let refusal = Refusal::new(status, answer.reason.as_deref(), body.as_ref());
    match status {
        // From the server's proxy: the node that it called closed the connection, or did not answer in time.
        502..=504 | 596..=599 => Err(Lost::After(format!("{server} answers {status} ({}): a node of the cluster does not answer it", refusal.text))),
        _ => Ok(Err(Error::Refused(refusal))),
    }
}

/// Builds a form with a file; returns the separator of its parts and the body.
fn multipart(name: &str, bytes: &Bytes) -> (String, Bytes) {
    // A hash of the file, which the file itself does not contain by chance.
    let boundary = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
    let mut body = Vec::with_capacity(bytes.len() + 512);
    body.extend(format!("--{boundary}\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n").bytes());
    let file = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"{name}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    body.extend(file.bytes());
    body.extend_from_slice(bytes);
    body.extend(format!("\r\n--{boundary}--\r\n").bytes());
    (boundary, body.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::contract::authority::Authority;
    use crate::hypervisor::contract::server;
    use crate::hypervisor::contract::server::Answer as Reply;
    use std::sync::Arc;

    /// The first server accepts connections and does not answer.
    #[tokio::test]
    async fn a_server_that_hangs_is_passed_over_and_not_asked_again() {
        let hangs = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = Authority::new("lab");
        let answers = Arc::new(|_: &server::Request| Reply::Whole { head: "200 OK".into(), body: r#"{"data": 7}"#.into() });
        let answering = server::serve(&authority, answers).await;
        let values = [("username", "capw@pve!capw"), ("password", "x"), ("ca.crt", &authority.pem)];
        let login = Login::new("lab/pve".into(), values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into());
        let servers = [hangs.local_addr().unwrap().to_string(), answering.clone()];
        let connection = Connection { patience: Duration::from_millis(300), ..Connection::new(&servers, &login).unwrap() };
        let call = Call { method: Method::GET, path: "/version".into(), body: Body::None };
        assert_eq!(connection.send(&call, Effect::Reads).await.unwrap(), 7);
        assert_eq!(connection.server(), answering);
        let waits = timeout(Duration::from_millis(100), hangs.accept()).await;
        assert!(waits.is_ok(), "it was asked");
        // A change is sent to the server that answers.
        assert_eq!(connection.send(&call, Effect::Changes).await.unwrap(), 7);
    }

    #[test]
    fn a_server_without_a_port_has_that_of_the_product() {
        let servers = ["pve1", "pve1:443", "[2001:db8::1]", "[2001:db8::1]:8006", "192.0.2.1"].map(with_port);
        assert_eq!(servers, ["pve1:8006", "pve1:443", "[2001:db8::1]:8006", "[2001:db8::1]:8006", "192.0.2.1:8006"]);
    }

    #[test]
    fn the_token_is_shown_nowhere_and_a_password_is_none() {
        let login = |user: &str, secret: &str| {
            Login::new("lab/pve".into(), [("username", user), ("password", secret)].map(|(k, v)| (k.to_owned(), v.as_bytes().to_vec())).into())
        };
        let value = token(&login("capw@pve!capw\n", "canary\n")).unwrap();
        assert_eq!((value.to_str().unwrap(), format!("{value:?}").contains("canary")), ("PVEAPIToken=capw@pve!capw=canary", false));
        for user in ["root@pam", "capw!x", "capw@pve!"] {
            let error = token(&login(user, "canary")).unwrap_err().to_string();
            assert!(error.contains("key username of Secret lab/pve") && error.contains("API token") && !error.contains("canary"), "{error}");
        }
        let error = token(&login("capw@pve!capw", "a\u{7}b")).unwrap_err().to_string();
        assert!(error.contains("key password"), "{error}");
    }
}
