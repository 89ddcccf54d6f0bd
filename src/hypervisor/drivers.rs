//! Which driver a WindowsHypervisor selects, and the shared connections to endpoints.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::observed::{CallHook, ObservedDriver};
pub use super::simulated::Clock;
use super::simulated::{self, SimulatedDriver};
use super::{Driver, DriverError};
use crate::api::hypervisor::{WindowsHypervisor, WindowsHypervisorSpec};
use crate::api::name::ObjectKey;

/// What the process passes to its drivers.
#[derive(Clone)]
pub struct DriverSettings {
    /// Directory of all simulated data centres; `--simulated-state`.
    pub simulated_state: PathBuf,
    /// Whether this process runs the guests of simulated VMs.
    pub simulated_guests: bool,
    /// Folder of the programs that guests of kind Wine run; `--wine-programs`.
    pub wine_programs: Option<PathBuf>,
    /// Time limit of one call.
    pub deadline: Duration,
    pub clock: Clock,
    pub hook: CallHook,
}

/// One shared connection per WindowsHypervisor, replaced when its spec changes.
pub struct Drivers {
    settings: DriverSettings,
    connections: Mutex<HashMap<ObjectKey, Connection>>,
}

struct Connection {
    uid: Option<String>,
    spec: WindowsHypervisorSpec,
    driver: Arc<dyn Driver>,
}

impl Drivers {
    pub fn new(settings: DriverSettings) -> Self {
        Self { settings, connections: Mutex::default() }
    }

    /// The connection to an endpoint. [`DriverError::Invalid`] names the field when the object names no driver or a wrong setting.
    pub fn get(&self, hypervisor: &WindowsHypervisor) -> Result<Arc<dyn Driver>, DriverError> {
        let key = ObjectKey::of(&hypervisor.metadata);
        let uid = hypervisor.metadata.uid.clone();
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connections.get(&key)
            && connection.spec == hypervisor.spec
            && connection.uid == uid
        {
            return Ok(connection.driver.clone());
        }
        let driver = self.connect(&key, &hypervisor.spec)?;
        connections.insert(key, Connection { uid, spec: hypervisor.spec.clone(), driver: driver.clone() });
        Ok(driver)
    }

    /// Drops the connection to an endpoint whose object is gone.
    pub fn forget(&self, hypervisor: &ObjectKey) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(hypervisor);
    }

    /// Runs the background work of drivers (the guests of simulated VMs) until `shutdown`. Returns at once if there is none.
    pub async fn run(&self, shutdown: CancellationToken) {
        if self.settings.simulated_guests {
            let DriverSettings { simulated_state, wine_programs, clock, .. } = self.settings.clone();
            simulated::guest::run(simulated_state, wine_programs, clock, shutdown).await;
        }
    }

    fn connect(&self, key: &ObjectKey, spec: &WindowsHypervisorSpec) -> Result<Arc<dyn Driver>, DriverError> {
        let Some(simulated) = &spec.simulated else {
            return Err(DriverError::Invalid(format!("WindowsHypervisor {key}: spec names no driver: set spec.simulated, e.g. to {{}}")));
        };
        let settings = &self.settings;
        let driver =
            SimulatedDriver::new(&settings.simulated_state, &format!("{}.{}", key.namespace, key.name), simulated.clone(), settings.clock.clone())?;
        let observed = ObservedDriver::new(Arc::new(driver), key.to_string(), settings.deadline, settings.hook.clone());
        Ok(Arc::new(observed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::hypervisor::Simulated;

    fn drivers() -> Drivers {
        Drivers::new(DriverSettings {
            simulated_state: PathBuf::from("/nonexistent"),
            simulated_guests: false,
            wine_programs: None,
            deadline: Duration::from_secs(30),
            clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
            hook: Arc::new(|_| ()),
        })
    }

    fn hypervisor(name: &str, simulated: Option<Simulated>) -> WindowsHypervisor {
        let mut object = WindowsHypervisor::new(name, WindowsHypervisorSpec { simulated, ..Default::default() });
        object.metadata.namespace = Some("lab".into());
        object
    }

    #[test]
    fn one_connection_until_the_spec_changes() {
        let drivers = drivers();
        let first = drivers.get(&hypervisor("a", Some(Simulated::default()))).unwrap();
        assert!(Arc::ptr_eq(&first, &drivers.get(&hypervisor("a", Some(Simulated::default()))).unwrap()));
        assert!(!Arc::ptr_eq(&first, &drivers.get(&hypervisor("b", Some(Simulated::default()))).unwrap()));
        let changed = hypervisor("a", Some(Simulated { unreachable: true, ..Simulated::default() }));
        assert!(!Arc::ptr_eq(&first, &drivers.get(&changed).unwrap()));
        drivers.forget(&ObjectKey::new("lab", "a"));
        assert_eq!(drivers.connections.lock().unwrap().len(), 1);
    }

    #[test]
    fn no_driver_is_an_error_with_the_field() {
        let error = drivers().get(&hypervisor("a", None)).err().unwrap().to_string();
        assert!(error.contains("lab/a") && error.contains("spec.simulated"), "{error}");
    }
}
