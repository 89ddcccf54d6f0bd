//! The session at a vCenter: one per address and login, shared by all placements in it. An expired session is recreated in the middle of
//! a call, and the call continues.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;

use super::answer::{Answer, unreadable};
use super::connection::Connection;
use super::datastore_file::DatastoreFile;
use super::fault::{Error, NOT_AUTHENTICATED};
use super::following::Following;
use super::mirror::Mirror;
use super::soap::{Reference, child, envelope, method, text_at, text_of};
use crate::hypervisor::DriverError;
use crate::hypervisor::login::Login;
use crate::hypervisor::wire::{Effect, Wire};
use crate::registry::Registry;
use crate::xml::{Element, element};

/// The keys of the Secret.
const USER: &str = "username";
const PASSWORD: &str = "password";

/// The sessions of this process, by address and login.
#[derive(Default)]
pub struct Sessions(Registry<(String, Login), Session>);

impl Sessions {
    /// Returns the session of that login at that address. Nothing is sent before its first call.
    pub fn get(&self, server: &str, login: &Login) -> Result<Arc<Session>, DriverError> {
        self.0.try_get((server.to_owned(), login.clone()), || Session::new(server, login))
    }
}

pub struct Session {
    connection: Connection,
    user: String,
    password: SecretString,
    current: Mutex<Current>,
    pub mirror: Mirror,
    pub following: Following,
    /// Held while a group of a cluster is changed: a change names all members of the group.
    pub groups: Mutex<()>,
}

#[derive(Default)]
struct Current {
    open: Option<Arc<Open>>,
    /// The id of the vCenter at the first login: another id means another vCenter.
    known: Option<String>,
}

/// An open session, and the vCenter's description of itself.
pub struct Open {
    cookie: String,
    /// The session's key, which requests for permissions name.
    pub key: String,
    /// The identity of the vCenter.
    pub instance: String,
    /// E.g. `VMware vCenter Server 8.0.3 build-24022515`.
    pub product: String,
    pub search: Reference,
    pub collector: Reference,
    pub authorization: Reference,
    pub tasks: Reference,
    pub files: Reference,
}

impl Session {
    fn new(server: &str, login: &Login) -> Result<Self, DriverError> {
        let given =
            |key: &str| String::from_utf8(login.required(key)?.to_vec()).map_err(|_| DriverError::Auth(format!("{} is no text", login.place(key))));
        let (user, password) = (given(USER)?.trim().to_owned(), SecretString::from(given(PASSWORD)?.trim_end_matches(['\r', '\n'])));
        Ok(Self {
            connection: Connection::new(server, login)?,
            user,
            password,
            current: Mutex::default(),
            mirror: Mirror::default(),
            following: Following::default(),
            groups: Mutex::default(),
        })
    }

    pub fn server(&self) -> &str {
        self.connection.server()
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The user and the password.
    pub fn credentials(&self) -> (&str, &SecretString) {
        (&self.user, &self.password)
    }

    /// Returns the session, and begins one if none is open.
    pub async fn open(&self, wire: &Wire) -> Result<Arc<Open>, DriverError> {
        let mut current = self.current.lock().await;
        if let Some(open) = &current.open {
            return Ok(open.clone());
        }
        let open = Arc::new(self.begin(wire).await?);
        let known = current.known.get_or_insert_with(|| open.instance.clone());
        if *known != open.instance {
            return Err(DriverError::EndpointChanged(format!(
                "the vCenter at {} has the id {}, and had {known} before: another one answers, or it was reinstalled",
                self.server(),
                open.instance
            )));
        }
        current.open = Some(open.clone());
        Ok(open)
    }

    /// Sends a request in the session. A request that is refused because the session has ended has changed nothing.
    pub async fn call(&self, wire: &Wire, name: &'static str, effect: Effect, request: impl Fn(&Open) -> Element) -> Result<Answer, Error> {
        let open = self.open(wire).await?;
        match self.send(wire, name, effect, &request(&open), Some(&open.cookie)).await {
            Err(error) if error.is(&[NOT_AUTHENTICATED]) => {
                self.forget(&open).await;
                let open = self.open(wire).await?;
                self.send(wire, name, effect, &request(&open), Some(&open.cookie)).await
            }
            result => result,
        }
        .map(|(answer, _)| answer)
    }

    /// Writes a file of a datastore in the session.
    pub async fn upload(&self, wire: &Wire, datacenter: &str, file: &DatastoreFile, content: Bytes) -> Result<(), DriverError> {
        for is_last in [false, true] {
            let open = self.open(wire).await?;
            let work =
                async { self.connection.put(datacenter, file, content.clone(), &open.cookie).await.map_err(|lost| lost.error(Effect::Changes)) };
            let (status, reason) = wire.change("PutFile", work).await?;
            let said = format!("the vCenter {} answers {status} {reason}when {} is written", self.server(), file.name());
            match status {
                status if status.is_success() => return Ok(()),
                StatusCode::UNAUTHORIZED if !is_last => self.forget(&open).await,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(DriverError::Denied(format!("{said}: grant Datastore.FileManagement on the datastore")));
                }
                status if status.is_server_error() => {
                    return Err(DriverError::Transient(format!("{said}: check that the datastore has room and that its hosts reach it")));
                }
                _ => return Err(DriverError::Invalid(said)),
            }
        }
        Err(DriverError::Transient("the session of the vCenter ends again and again".into()))
    }

    /// Drops the ended session. Another call may have begun a new one already.
    async fn forget(&self, ended: &Arc<Open>) {
        let mut current = self.current.lock().await;
        if current.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, ended)) {
            current.open = None;
        }
    }

    async fn begin(&self, wire: &Wire) -> Result<Open, Error> {
        let root = Reference::new("ServiceInstance", "ServiceInstance");
        let (content, _) = self.send(wire, "RetrieveServiceContent", Effect::Reads, &method("RetrieveServiceContent", &root), None).await?;
        let content = content.value(|node| {
            let reference = |name: &str| child(node, name).and_then(Reference::of);
            let about = |name: &str| text_at(node, &["about", name]).unwrap_or_default().to_owned();
            Some((
                reference("sessionManager")?,
                reference("searchIndex")?,
                reference("propertyCollector")?,
                reference("authorizationManager")?,
                reference("taskManager")?,
                reference("fileManager")?,
                [about("apiType"), about("instanceUuid"), about("fullName")],
            ))
        })?;
        let Some((manager, search, collector, authorization, tasks, files, [kind, instance, product])) = content else {
            return Err(unreadable(&"it does not say what it is"));
        };
        if kind != "VirtualCenter" || instance.is_empty() {
            return Err(DriverError::Invalid(format!(
                "{} is {product}, not a vCenter: a host alone cannot clone VMs. Name the vCenter in spec.vsphere.server",
                self.server()
            ))
            .into());
        }
        let login =
            method("Login", &manager).with(element("userName").text(&self.user)).with(element("password").text(self.password.expose_secret()));
        let (answer, cookie) = self.send(wire, "Login", Effect::Reads, &login, None).await?;
        let key = answer.value(|node| child(node, "key").map(|key| text_of(key).to_owned()))?.unwrap_or_default();
        let cookie = cookie.ok_or_else(|| unreadable(&"the login began no session"))?;
        Ok(Open { cookie, key, instance, product, search, collector, authorization, tasks, files })
    }

    async fn send(
        &self,
        wire: &Wire,
        name: &'static str,
        effect: Effect,
        request: &Element,
        cookie: Option<&str>,
    ) -> Result<(Answer, Option<String>), Error> {
        let work = async {
            let response = self.connection.post(envelope(request), cookie).await.map_err(|lost| lost.error(effect))?;
            let answer = Answer::new(response.text).map_err(|error| match (error, effect) {
                // The change may have happened.
                (Error::Driver(DriverError::Transient(text)), Effect::Changes) => DriverError::Unknown(text).into(),
                (error, _) => error,
            })?;
            Ok((answer, response.cookie))
        };
        wire.request(name, effect, work).await
    }
}
