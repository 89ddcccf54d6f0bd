//! One folder per driver; selects the driver of a WindowsHypervisor, and holds the shared connections to endpoints.

mod libvirt;
mod proxmox;
mod simulated;
mod vsphere;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::libvirt::LibvirtDriver;
use self::proxmox::ProxmoxDriver;
pub use self::simulated::Clock;
use self::simulated::SimulatedDriver;
use self::vsphere::{Sessions, VsphereDriver};
use super::driver::Driver;
use super::gates::Gates;
use super::login::Login;
use super::observed::{CallHook, EndpointSettings, ObservedDriver};
use super::wire::{Fate, Wire};
use crate::api::hypervisor::{ChosenDriver, DRIVERS, WindowsHypervisor, WindowsHypervisorSpec};
use crate::api::name::ObjectKey;
use crate::vm::DriverError;

/// Called for every request to an endpoint, with the driver, `<namespace>/<name>` of the WindowsHypervisor and the name of the request.
pub type RequestHook = Arc<dyn Fn(&'static str, &str, &'static str) + Send + Sync>;

/// The settings that the process passes to its drivers.
#[derive(Clone)]
pub struct DriverSettings {
    /// The directory of all simulated data centres; `--simulated-state`.
    pub simulated_state: PathBuf,
    /// Whether this process runs the guests of simulated VMs.
    pub simulated_guests: bool,
    /// The folder of the programs that guests of kind Wine run; `--wine-programs`, which releases do not have.
    pub wine_programs: Option<PathBuf>,
    /// The most machines that are reconciled at the same time.
    pub passes: usize,
    pub clock: Clock,
    pub hook: CallHook,
    pub requests: RequestHook,
}

impl DriverSettings {
    /// The settings of a process that runs no guests and counts nothing.
    pub fn uncounted(simulated_state: PathBuf, passes: usize, clock: Clock) -> Self {
        Self {
            simulated_state,
            simulated_guests: false,
            wine_programs: None,
            passes,
            clock,
            hook: Arc::new(|_| ()),
            requests: Arc::new(|_, _, _| ()),
        }
    }
}

/// One shared connection per WindowsHypervisor, replaced when its spec or its login changes.
pub struct Drivers {
    settings: DriverSettings,
    connections: Mutex<HashMap<ObjectKey, Connection>>,
    /// The channel of endpoints at which something has changed.
    hints: (UnboundedSender<ObjectKey>, Mutex<Option<UnboundedReceiver<ObjectKey>>>),
    /// Shared by all WindowsHypervisors that name the same vCenter and login.
    vcenters: Sessions,
    /// Shared by all WindowsHypervisors that name the same endpoint and login.
    gates: Gates,
}

struct Connection {
    uid: Option<String>,
    spec: WindowsHypervisorSpec,
    login: Login,
    driver: Arc<dyn Driver>,
    /// When the endpoint proved its identity and its permissions; `None`: machines may not use it.
    admitted: Option<Timestamp>,
    /// The task that forwards the driver's hints.
    listener: Option<AbortOnDropHandle<()>>,
}

/// The shortest time between two hints of one endpoint.
const BETWEEN_HINTS: Duration = Duration::from_secs(1);

impl Drivers {
    pub fn new(settings: DriverSettings) -> Self {
        let (hints, hinted) = unbounded();
        Self {
            settings,
            connections: Mutex::default(),
            hints: (hints, Mutex::new(Some(hinted))),
            vcenters: Sessions::default(),
            gates: Gates::default(),
        }
    }

    /// Returns the connection to an endpoint; only the controller of WindowsHypervisors creates connections. [`DriverError::Invalid`] names
    /// the field when the object names no driver or a wrong setting.
    pub fn connect(&self, hypervisor: &WindowsHypervisor, login: &Login) -> Result<Arc<dyn Driver>, DriverError> {
        let key = ObjectKey::of(&hypervisor.metadata);
        let uid = hypervisor.metadata.uid.clone();
        let mut connections = self.connections.lock();
        if let Some(connection) = connections.get(&key)
            && connection.spec == hypervisor.spec
            && connection.login == *login
            && connection.uid == uid
        {
            return Ok(connection.driver.clone());
        }
        connections.remove(&key);
        let driver = self.make(&key, &hypervisor.spec, login)?;
        connections.insert(
            key,
            Connection { uid, spec: hypervisor.spec.clone(), login: login.clone(), driver: driver.clone(), admitted: None, listener: None },
        );
        Ok(driver)
    }

    /// Stores an admitted connection that uses the driver of a test.
    #[cfg(test)]
    pub fn put(&self, hypervisor: &WindowsHypervisor, driver: Arc<dyn Driver>) {
        let admitted = Some(Timestamp::UNIX_EPOCH);
        let connection = Connection {
            uid: hypervisor.metadata.uid.clone(),
            spec: hypervisor.spec.clone(),
            login: Login::default(),
            driver,
            admitted,
            listener: None,
        };
        self.connections.lock().insert(ObjectKey::of(&hypervisor.metadata), connection);
    }

    /// Returns the connection that machines use, if its endpoint was admitted.
    pub fn connected(&self, hypervisor: &ObjectKey) -> Option<Arc<dyn Driver>> {
        self.connections.lock().get(hypervisor).filter(|connection| connection.admitted.is_some()).map(|connection| connection.driver.clone())
    }

    /// Returns the time at which the endpoint was admitted.
    pub fn admitted(&self, hypervisor: &ObjectKey) -> Option<Timestamp> {
        self.connections.lock().get(hypervisor)?.admitted
    }

    /// Lets machines use the connection (`Some`) or prevents it (`None`), because the endpoint's answers about them are not trusted.
    pub fn admit(&self, hypervisor: &ObjectKey, at: Option<Timestamp>) {
        if let Some(connection) = self.connections.lock().get_mut(hypervisor) {
            connection.admitted = at;
            connection.listener = match (at, connection.listener.take()) {
                (Some(_), None) => connection.driver.hints().map(|hints| self.listen(hypervisor, hints)),
                (Some(_), listener) => listener,
                (None, _) => None,
            };
        }
    }

    /// Returns the endpoints to list now because something has changed there. Only the first caller gets the stream.
    pub fn hints(&self) -> BoxStream<'static, ObjectKey> {
        let hinted = self.hints.1.lock().take();
        hinted.map_or_else(|| stream::empty().boxed(), StreamExt::boxed)
    }

    fn listen(&self, hypervisor: &ObjectKey, mut hints: BoxStream<'static, ()>) -> AbortOnDropHandle<()> {
        let (hypervisor, told) = (hypervisor.clone(), self.hints.0.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            while hints.next().await.is_some() && told.unbounded_send(hypervisor.clone()).is_ok() {
                sleep(BETWEEN_HINTS).await;
            }
        }))
    }

    /// Drops the connection to an endpoint whose object was deleted.
    pub fn forget(&self, hypervisor: &ObjectKey) {
        self.connections.lock().remove(hypervisor);
    }

    /// Runs the background work of drivers (the guests of simulated VMs) until `shutdown`. Returns at once if there is none.
    pub async fn run(&self, shutdown: CancellationToken) {
        if self.settings.simulated_guests {
            let DriverSettings { simulated_state, wine_programs, clock, .. } = self.settings.clone();
            simulated::guest::run(simulated_state, wine_programs, clock, shutdown).await;
        }
    }

    fn make(&self, key: &ObjectKey, spec: &WindowsHypervisorSpec, login: &Login) -> Result<Arc<dyn Driver>, DriverError> {
        let DriverSettings { simulated_state, clock, passes, hook, .. } = &self.settings;
        let Some(chosen) = spec.chosen() else { return Err(DriverError::Invalid(name_one_driver(key))) };
        let wire = self.wire(chosen.name(), key);
        let (driver, address): (Arc<dyn Driver>, String) = match chosen {
            ChosenDriver::Simulated(simulated) => {
                let default_name = format!("{}.{}", key.namespace, key.name);
                let driver = SimulatedDriver::new(simulated_state, &default_name, simulated.clone(), clock.clone(), wire)?;
                // Each WindowsHypervisor can be slow on its own, so it gets its own gates, even if the data centre is shared.
                (Arc::new(driver), key.to_string())
            }
            ChosenDriver::Libvirt(libvirt) => (Arc::new(LibvirtDriver::new(libvirt.clone(), login, wire)?), libvirt.address.clone()),
            ChosenDriver::Vsphere(vsphere) => (Arc::new(VsphereDriver::new(vsphere.clone(), login, &self.vcenters, wire)?), vsphere.server.clone()),
            ChosenDriver::Proxmox(proxmox) => (Arc::new(ProxmoxDriver::new(proxmox.clone(), login, wire)?), proxmox.servers.join(" ")),
        };
        let most_changes = spec.limits.as_ref().and_then(|limits| limits.changes).and_then(|most| usize::try_from(most).ok());
        let settings = EndpointSettings { name: key.to_string(), images: spec.images.clone(), networks: spec.networks.clone(), most_changes };
        let gates = self.gates.get(address, login, driver.caps(), *passes);
        Ok(Arc::new(ObservedDriver::new(driver, settings, gates, hook.clone())))
    }

    fn wire(&self, driver: &'static str, key: &ObjectKey) -> Wire {
        let (count, endpoint) = (self.settings.requests.clone(), key.to_string());
        Wire::new(Arc::new(move |request| {
            count(driver, &endpoint, request.name);
            Fate::Pass
        }))
    }
}

/// Formats the error for an object that names no driver, or several.
fn name_one_driver(key: &ObjectKey) -> String {
    let real: Vec<String> = DRIVERS.iter().filter(|name| **name != "simulated").map(|name| format!("spec.{name}")).collect();
    format!("WindowsHypervisor {key}: name exactly one driver: set {} or, for a trial, spec.simulated, e.g. to {{}}", real.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::hypervisor::{Limits, Simulated, Vsphere};
    use crate::api::name::VmUuid;
    use crate::vm::MachineKey;

    /// With the network policy of `config/production`, CAPW reaches hypervisors of every kind. The page about security lists the ports.
    #[test]
    fn the_network_policy_lets_out_to_the_usual_port_of_every_driver() {
        use super::libvirt::address;
        use super::proxmox::connection;

        let policy = include_str!("../../config/components/network-policy/policy.yaml");
        let policy: serde_json::Value = serde_saphyr::from_str(policy).unwrap();
        let rules = policy["spec"]["egress"].as_array().unwrap().iter().filter(|rule| rule.get("to").is_none());
        let allowed: Vec<u64> = rules.flat_map(|rule| rule["ports"].as_array().unwrap()).map(|port| port["port"].as_u64().unwrap()).collect();
        let page = include_str!("../../docs/security.md");
        for port in [443, address::TLS_PORT, address::SSH_PORT, connection::PORT] {
            assert!(allowed.contains(&port.into()), "{port} is not among {allowed:?}");
            assert!(page.contains(&format!("\n| {port} | ")), "docs/security.md does not name port {port}");
        }
    }

    fn drivers() -> Drivers {
        Drivers::new(DriverSettings::uncounted("/nonexistent".into(), 32, Arc::new(|| Timestamp::UNIX_EPOCH)))
    }

    fn hypervisor(name: &str, simulated: Option<Simulated>) -> WindowsHypervisor {
        let mut object = WindowsHypervisor::new(name, WindowsHypervisorSpec { simulated, ..WindowsHypervisorSpec::default() });
        object.metadata.namespace = Some("lab".into());
        object
    }

    #[test]
    fn one_connection_until_the_spec_changes() {
        let drivers = drivers();
        let first = drivers.connect(&hypervisor("a", Some(Simulated::default())), &Login::default()).unwrap();
        assert!(Arc::ptr_eq(&first, &drivers.connect(&hypervisor("a", Some(Simulated::default())), &Login::default()).unwrap()));
        assert!(!Arc::ptr_eq(&first, &drivers.connect(&hypervisor("b", Some(Simulated::default())), &Login::default()).unwrap()));
        let changed = hypervisor("a", Some(Simulated { unreachable: true, ..Simulated::default() }));
        assert!(!Arc::ptr_eq(&first, &drivers.connect(&changed, &Login::default()).unwrap()));
        let login = Login::new("lab/kvm1".into(), [("tls.key".to_owned(), b"x".to_vec())].into());
        assert!(!Arc::ptr_eq(&drivers.connect(&changed, &Login::default()).unwrap(), &drivers.connect(&changed, &login).unwrap()));
        drivers.forget(&ObjectKey::new("lab", "a"));
        assert_eq!(drivers.connections.lock().len(), 1);
    }

    #[test]
    fn machines_use_a_connection_from_its_admission_until_the_spec_changes() {
        let (drivers, key) = (drivers(), ObjectKey::new("lab", "a"));
        let used = |drivers: &Drivers| drivers.connected(&key).is_some();
        drivers.connect(&hypervisor("a", Some(Simulated::default())), &Login::default()).unwrap();
        assert!(!used(&drivers));
        drivers.admit(&key, Some(Timestamp::UNIX_EPOCH));
        drivers.connect(&hypervisor("a", Some(Simulated::default())), &Login::default()).unwrap();
        assert!(used(&drivers));
        drivers.admit(&key, None);
        assert!(!used(&drivers));
        drivers.admit(&key, Some(Timestamp::UNIX_EPOCH));
        drivers.connect(&hypervisor("a", None), &Login::default()).err().unwrap();
        assert!(!used(&drivers), "what the spec no longer names is not used");
    }

    #[test]
    fn no_driver_is_an_error_with_the_field() {
        let error = drivers().connect(&hypervisor("a", None), &Login::default()).err().unwrap().to_string();
        assert!(error.contains("lab/a") && error.contains("spec.simulated"), "{error}");
    }

    /// A vCenter that is never called.
    fn vcenter(server: &str, namespace: &str, changes: Option<i64>) -> WindowsHypervisor {
        let mut object = hypervisor("a", None);
        object.metadata.namespace = Some(namespace.into());
        object.spec.vsphere = Some(Vsphere { server: server.into(), datacenter: "dc".into(), ..Vsphere::default() });
        object.spec.limits = changes.map(|changes| Limits { changes: Some(changes), ..Limits::default() });
        object
    }

    fn login(namespace: &str, ca: &str, password: &str) -> Login {
        let values = [("username", "capw"), ("password", password), ("ca.crt", ca)];
        Login::new(format!("{namespace}/vcenter"), values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into())
    }

    #[test]
    fn objects_of_one_endpoint_and_login_share_its_gates() {
        let drivers = drivers();
        let ca = rcgen::generate_simple_self_signed(["lab".to_owned()]).unwrap().cert.pem();
        let connect = |object: &WindowsHypervisor, password: &str| {
            drivers.connect(object, &login(object.metadata.namespace.as_deref().unwrap(), &ca, password)).unwrap()
        };
        // Counts the changes that still find a place, and keeps those places.
        let mut held = Vec::new();
        let mut places = |driver: &Arc<dyn Driver>| {
            let before = held.len();
            for number in 0..16 {
                let vm = VmUuid::of(&format!("{before} {number}"));
                held.extend(driver.keep_place(&MachineKey { vm, cluster: "lab/one".into(), name: "x".into() }).ok().flatten());
            }
            held.len() - before
        };
        let one = connect(&vcenter("vc.lab", "one", Some(2)), "secret");
        assert_eq!(places(&one), 2, "its own limit");
        let two = connect(&vcenter("vc.lab", "two", None), "secret");
        assert_eq!(places(&two), 6, "what is left of eight");
        assert_eq!(places(&connect(&vcenter("vc.lab", "three", None), "secret")), 0, "the endpoint is full");
        assert_eq!(places(&connect(&vcenter("vc.lab", "four", None), "guessed")), 8, "who does not know the password fills no gate of others");
        assert_eq!(places(&connect(&vcenter("other.lab", "five", None), "secret")), 8);
        drop((one, two));
        for namespace in ["one", "two", "three"] {
            drivers.forget(&ObjectKey::new(namespace, "a"));
        }
        assert_eq!(places(&connect(&vcenter("vc.lab", "six", None), "secret")), 8, "gates that nothing uses are gone");
    }
}
