//! The simulated driver against the contract of every driver, and the tests of this driver alone.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tempfile::TempDir;

use super::driver::{Clock, SimulatedDriver};
use super::record::{Home, Record};
use crate::api::hypervisor::{Fault, Simulated, SimulatedCapacity, SimulatedDelays, SimulatedFault};
use crate::api::name::VmUuid;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::contract::{self, TestEndpoint};
use crate::hypervisor::gates::EndpointGates;
use crate::hypervisor::observed::{EndpointSettings, ObservedDriver};
use crate::hypervisor::wire::{Fate, Wire, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep, Wanted};
use crate::vm::{Journal, MachineKey, Observed, Power, Seed, StopMode, VmSpec};

struct SimulatedEndpoint {
    state: TempDir,
    settings: Simulated,
    clock: Clock,
}

fn simulated(settings: Simulated) -> SimulatedEndpoint {
    SimulatedEndpoint { state: tempfile::tempdir().unwrap(), settings, clock: contract::clock() }
}

impl SimulatedEndpoint {
    fn with(&self, change: impl FnOnce(&mut Simulated)) -> Arc<dyn Driver> {
        self.connect(change, Arc::new(|_| Fate::Pass))
    }

    fn connect(&self, change: impl FnOnce(&mut Simulated), hook: WireHook) -> Arc<dyn Driver> {
        let mut settings = self.settings.clone();
        change(&mut settings);
        let driver = SimulatedDriver::new(self.state.path(), "lab", settings, self.clock.clone(), Wire::new(hook)).unwrap();
        let settings = EndpointSettings { name: "lab/one".into(), ..EndpointSettings::default() };
        let gates = Arc::new(EndpointGates::new(driver.caps(), 32));
        Arc::new(ObservedDriver::new(Arc::new(driver), settings, gates, Arc::new(|_| ())))
    }

    fn home(&self, key: &MachineKey, suffix: &str) -> Home {
        Home(self.directory().join(format!("{}{suffix}", key.vm)))
    }

    fn directory(&self) -> PathBuf {
        self.state.path().join("lab")
    }
}

#[async_trait]
impl TestEndpoint for SimulatedEndpoint {
    fn driver(&self) -> Arc<dyn Driver> {
        self.with(|_| ())
    }

    fn wired(&self, hook: WireHook) -> Arc<dyn Driver> {
        self.connect(|_| (), hook)
    }

    fn spec(&self) -> VmSpec {
        contract::spec()
    }

    fn unreachable(&self) -> Arc<dyn Driver> {
        self.with(|settings| settings.unreachable = true)
    }

    fn small(&self) -> Option<Arc<dyn Driver>> {
        Some(self.with(|settings| settings.capacity = Some(SimulatedCapacity { cpus: 5, memory: "8Gi".into() })))
    }

    async fn occupy(&self, key: &MachineKey) {
        let home = self.home(key, "");
        fs::create_dir_all(home.disk()).unwrap();
        let record = Record::new(key, &contract::spec(), vec![], 0, Timestamp::UNIX_EPOCH);
        home.write(&Record { mark: "made by hand".into(), ..record }).unwrap();
    }

    async fn half_made(&self, key: &MachineKey) {
        fs::create_dir_all(self.home(key, ".new").disk()).unwrap();
    }

    async fn half_removed(&self, key: &MachineKey) {
        let home = self.home(key, ".gone");
        fs::create_dir_all(home.disk()).unwrap();
        fs::write(home.config_drive(), b"x").unwrap();
    }

    async fn seed(&self, key: &MachineKey) -> Option<SeedImage> {
        fs::read(self.home(key, "").config_drive()).ok().map(SeedImage::Drive)
    }

    async fn remove_behind_its_back(&self, key: &MachineKey) {
        fs::remove_dir_all(self.home(key, "").0).unwrap();
    }

    async fn count(&self) -> usize {
        let entries = fs::read_dir(self.directory()).into_iter().flatten().map(|entry| entry.unwrap().path());
        let machines = entries.filter(|path| path.is_dir()).map(|path| path.file_stem().unwrap().to_owned());
        machines.collect::<std::collections::BTreeSet<_>>().len()
    }
}

fn key(name: &str) -> MachineKey {
    MachineKey { vm: VmUuid::of(name), cluster: "lab/one".into(), name: name.into() }
}

async fn step(driver: &dyn Driver, key: &MachineKey) -> Result<DriverStep, DriverError> {
    driver.advance(key, &contract::spec(), &Seed::Drive { label: "cidata", files: BTreeMap::new() }, &Journal::new(), &Observed::Absent).await
}

async fn run(driver: &dyn Driver, key: &MachineKey) {
    for _ in 0..20 {
        match step(driver, key).await.unwrap() {
            DriverStep::Done => return,
            DriverStep::Wait { after } => tokio::time::sleep(after).await,
            _ => {}
        }
    }
    panic!("{} does not run", key.name);
}

async fn see(driver: &dyn Driver, key: &MachineKey) -> (Power, Vec<IpAddr>) {
    match driver.observe(key, &Journal::new()).await.unwrap() {
        Observed::Present(vm) => (vm.power, vm.addresses),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract() {
    contract::all(|| simulated(Simulated::default())).await;
    contract::any_request_may_be_lost(|| simulated(Simulated::default())).await;
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_with_delays() {
    let delays = SimulatedDelays { create_milliseconds: 30_000, boot_milliseconds: 240_000, join_milliseconds: 0, stop_milliseconds: 20_000 };
    let endpoint = || simulated(Simulated { delays: delays.clone(), ..Simulated::default() });
    contract::all(endpoint).await;
    contract::any_request_may_be_lost(endpoint).await;
}

#[tokio::test(start_paused = true)]
async fn it_is_proven() {
    let delays = SimulatedDelays { create_milliseconds: 30_000, boot_milliseconds: 240_000, join_milliseconds: 0, stop_milliseconds: 20_000 };
    contract::proof::is_proven(&simulated(Simulated { delays, ..Simulated::default() })).await;
}

#[tokio::test(start_paused = true)]
async fn delays_show_as_power_and_addresses() {
    let delays = SimulatedDelays { create_milliseconds: 1000, boot_milliseconds: 5000, join_milliseconds: 0, stop_milliseconds: 700 };
    let endpoint = simulated(Simulated { delays, ..Simulated::default() });
    let (driver, key) = (endpoint.driver(), key("vm"));
    assert_eq!(step(&*driver, &key).await, Ok(DriverStep::Wait { after: Duration::from_secs(1) }));
    assert_eq!(see(&*driver, &key).await.0, Power::Creating);
    run(&*driver, &key).await;
    assert_eq!(see(&*driver, &key).await, (Power::On, vec![]));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (_, addresses) = see(&*driver, &key).await;
    assert!(addresses.len() == 1 && addresses[0].to_string().starts_with("10."), "{addresses:?}");
    let stop = driver.retire(&key, StopMode::Graceful, &Journal::new(), &Observed::Absent).await;
    assert_eq!(stop, Ok(DriverStep::Wait { after: Duration::from_millis(700) }));
    assert_eq!(see(&*driver, &key).await, (Power::Stopping, vec![]));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(see(&*driver, &key).await, (Power::Off, vec![]));
}

#[tokio::test(start_paused = true)]
async fn faults_follow_from_the_name_and_from_the_list() {
    let delays = SimulatedDelays { boot_milliseconds: 2000, ..SimulatedDelays::default() };
    let faults = vec![
        SimulatedFault { names: "md-*".into(), fault: Fault::CreateFails, count: Some(1) },
        SimulatedFault { names: "*".into(), fault: Fault::NoJoin, count: Some(2) },
    ];
    let endpoint = simulated(Simulated { delays, faults, ..Simulated::default() });
    let record = |key: &MachineKey| endpoint.home(key, "").read().unwrap().unwrap();

    let dead = key("win-noboot-x7f2k");
    run(&*endpoint.driver(), &dead).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(see(&*endpoint.driver(), &dead).await, (Power::On, vec![]));
    assert_eq!(record(&dead).faults, [Fault::NoBoot, Fault::NoJoin]);

    let slow = key("win-slow");
    run(&*endpoint.driver(), &slow).await;
    assert_eq!((record(&slow).boot_milliseconds, record(&slow).join_milliseconds), (20_000, 10_000));

    // A new connection each time: the data centre keeps the count, not the process.
    let failing = key("md-1");
    for time in 1..=3 {
        let error = step(&*endpoint.driver(), &failing).await.unwrap_err();
        assert!(matches!(&error, DriverError::Transient(text) if text.contains(&format!("time {time} of 3"))), "{error}");
    }
    run(&*endpoint.driver(), &failing).await;
    run(&*endpoint.driver(), &key("md-2")).await;
    assert_eq!(record(&key("md-2")).faults, []);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_named_and_left_alone() {
    let endpoint = simulated(Simulated::default());
    let (driver, key) = (endpoint.driver(), key("damaged"));
    run(&*driver, &key).await;
    fs::write(endpoint.home(&key, "").record(), b"{").unwrap();
    for error in [driver.observe(&key, &Journal::new()).await.err(), step(&*driver, &key).await.err()] {
        assert!(matches!(&error, Some(DriverError::Conflict(text)) if text.contains("vm.json")), "{error:?}");
    }
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
}
