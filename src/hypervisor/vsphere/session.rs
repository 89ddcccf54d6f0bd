//! The session at a vCenter: one per address and login, shared by all placements in it. One that has expired is made anew in the middle of
//! a call, which goes on.

use std::sync::{Arc, Mutex as SyncMutex, PoisonError, Weak};

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;

use super::connection::{Connection, Lost};
use super::fault::{Error, NOT_AUTHENTICATED};
use super::soap::{Answer, Reference, child, envelope, method, text_at, text_of, unreadable};
use crate::hypervisor::DriverError;
use crate::hypervisor::login::Login;
use crate::hypervisor::wire::Wire;
use crate::hypervisor::xml::{Element, element};

/// Keys of the Secret.
const USER: &str = "username";
const PASSWORD: &str = "password";

/// The sessions of this process.
#[derive(Default)]
pub struct Sessions(SyncMutex<Vec<(String, Login, Weak<Session>)>>);

impl Sessions {
    /// The session of that login at that address. Nothing is sent before its first call.
    pub fn get(&self, server: &str, login: &Login) -> Result<Arc<Session>, DriverError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, _, session)| session.strong_count() > 0);
        let known = all.iter().find(|(address, with, _)| address == server && with == login).and_then(|(_, _, session)| session.upgrade());
        if let Some(session) = known {
            return Ok(session);
        }
        let session = Arc::new(Session::new(server, login)?);
        all.push((server.to_owned(), login.clone(), Arc::downgrade(&session)));
        Ok(session)
    }
}

pub struct Session {
    connection: Connection,
    user: String,
    password: SecretString,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    open: Option<Arc<Open>>,
    /// The vCenter of the first login: one of another id is another one.
    known: Option<String>,
}

/// A session that has begun, and what its vCenter says of itself.
pub struct Open {
    cookie: String,
    /// What permissions are asked for by.
    pub key: String,
    /// Identity of the vCenter.
    pub instance: String,
    /// E.g. `VMware vCenter Server 8.0.3 build-24022515`.
    pub product: String,
    pub search: Reference,
    pub collector: Reference,
    pub authorization: Reference,
}

/// What a request may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Reads,
    Changes,
}

impl Session {
    fn new(server: &str, login: &Login) -> Result<Self, DriverError> {
        let given = |key: &str| {
            let value = login.get(key).ok_or_else(|| DriverError::Auth(format!("{} is missing", login.place(key))))?;
            String::from_utf8(value.to_vec()).map_err(|_| DriverError::Auth(format!("{} is no text", login.place(key))))
        };
        let (user, password) = (given(USER)?.trim().to_owned(), SecretString::from(given(PASSWORD)?.trim_end_matches(['\r', '\n'])));
        Ok(Self { connection: Connection::new(server, login)?, user, password, current: Mutex::default() })
    }

    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// The session; it is begun if there is none.
    pub async fn open(&self, wire: &Wire) -> Result<Arc<Open>, DriverError> {
        let mut current = self.current.lock().await;
        if let Some(open) = &current.open {
            return Ok(open.clone());
        }
        let open = Arc::new(self.begin(wire).await?);
        let known = current.known.get_or_insert_with(|| open.instance.clone());
        if *known != open.instance {
            return Err(DriverError::EndpointChanged(format!(
                "the vCenter at {} has the id {}, and had {known} before: another one answers, or it was installed anew",
                self.server(),
                open.instance
            )));
        }
        current.open = Some(open.clone());
        Ok(open)
    }

    /// Makes a request in the session. A request that is refused because the session has ended has done nothing.
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

    /// Another call may have begun a new one already.
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
                [about("apiType"), about("instanceUuid"), about("fullName")],
            ))
        })?;
        let Some((manager, search, collector, authorization, [kind, instance, product])) = content else {
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
        Ok(Open { cookie, key, instance, product, search, collector, authorization })
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
            let response = self.connection.post(envelope(request), cookie).await.map_err(|lost| match (lost, effect) {
                (Lost::Before(error), _) => error,
                (Lost::After(text), Effect::Reads) => DriverError::Unreachable(text),
                (Lost::After(text), Effect::Changes) => DriverError::Unknown(text),
            })?;
            let answer = Answer::new(response.text).map_err(|error| match (error, effect) {
                // It may have been done.
                (Error::Driver(DriverError::Transient(text)), Effect::Changes) => DriverError::Unknown(text).into(),
                (error, _) => error,
            })?;
            Ok((answer, response.cookie))
        };
        match effect {
            Effect::Reads => wire.read(name, work).await,
            Effect::Changes => wire.change(name, work).await,
        }
    }
}
