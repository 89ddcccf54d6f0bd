//! A simulated hypervisor for runs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::hypervisor::{Simulated, WindowsHypervisor, WindowsHypervisorSpec};
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::login::Login;
use crate::hypervisor::prove::bench::{Bench, Connect};
use crate::hypervisor::prove::ledger::Ledger;
use crate::hypervisor::prove::outcome::Outcome;
use crate::hypervisor::prove::proof::prove;
use crate::hypervisor::prove::run::Run;
use crate::hypervisor::{Driver, DriverError, contract};

/// A simulated hypervisor whose requests are counted.
pub struct Lab {
    state: tempfile::TempDir,
    settings: DriverSettings,
    pub requests: Arc<AtomicUsize>,
    stop: CancellationToken,
    pub ledger: Ledger,
    pub run: Run,
}

impl Lab {
    /// A lab that is stopped at its n-th request.
    pub fn stopped_at(n: usize) -> Self {
        let (requests, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (count, end) = (requests.clone(), stop.clone());
        let state = tempfile::tempdir().unwrap();
        let mut settings = DriverSettings::uncounted(state.path().into(), 32, contract::clock());
        settings.requests = Arc::new(move |_, _, _| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 == n {
                end.cancel();
            }
        });
        Self { state, settings, requests, stop, ledger: Ledger::default(), run: "k3x9d0aa".parse().unwrap() }
    }

    pub fn new() -> Self {
        Self::stopped_at(usize::MAX)
    }

    pub fn connect(&self, simulated: &Simulated) -> Result<Arc<dyn Driver>, DriverError> {
        let spec = WindowsHypervisorSpec { simulated: Some(simulated.clone()), ..WindowsHypervisorSpec::default() };
        Drivers::new(self.settings.clone()).connect(&WindowsHypervisor::new("lab", spec), &Login::default())
    }

    pub fn bench<'a>(&'a self, connect: &'a Connect<'a>) -> Bench<'a> {
        Bench {
            run: &self.run,
            connect,
            spec: contract::spec(),
            limit: Duration::from_secs(600),
            ledger: &self.ledger,
            stop: &self.stop,
            progress: &|_| (),
            endpoint: OnceLock::new(),
        }
    }

    pub async fn prove(&self, simulated: Simulated) -> Vec<Outcome> {
        prove(&self.bench(&|| self.connect(&simulated))).await
    }

    /// The directories of VMs and of their leftovers.
    pub fn left(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.state.path().join(".lab")).into_iter().flatten().map(|entry| entry.unwrap().path());
        all.filter(|path| path.is_dir()).collect()
    }
}
