//! The contract of every driver, as tests over a [`TestEndpoint`]: a new driver implements one and calls [`all`].

mod seed;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::sleep;

use super::{Driver, DriverError, DriverStep};
use crate::api::name::{HostName, VmUuid};
use crate::vm::{Journal, MachineKey, Observed, Power, Present, Seed, StopMode, VmSpec};

/// An endpoint for tests, with the manipulations that only the driver's own tests can do.
#[async_trait]
pub trait TestEndpoint: Send + Sync {
    /// A new connection to the same endpoint, like that of another process.
    fn driver(&self) -> Arc<dyn Driver>;
    /// The same endpoint behind a broken network.
    fn unreachable(&self) -> Arc<dyn Driver>;
    /// The same endpoint with room for exactly two machines of [`spec`].
    fn small(&self) -> Arc<dyn Driver>;
    /// Puts a foreign VM where that of `key` would be.
    async fn occupy(&self, key: &MachineKey);
    /// Makes what is left if the process is killed during a create call.
    async fn half_made(&self, key: &MachineKey);
    /// Makes what is left if the process is killed during a remove call.
    async fn half_removed(&self, key: &MachineKey);
    /// The bytes that the guest finds on its drive.
    async fn config_drive(&self, key: &MachineKey) -> Option<Vec<u8>>;
    /// Removes the VM behind the driver's back.
    async fn remove_behind_its_back(&self, key: &MachineKey);
    /// The number of all VMs and leftovers at the endpoint, foreign ones included.
    async fn count(&self) -> usize;
}

fn key(name: &str) -> MachineKey {
    MachineKey { vm: VmUuid::of(name), cluster: "lab/one".into(), name: name.into() }
}

/// The machine that the tests create.
pub fn spec() -> VmSpec {
    VmSpec {
        image: "windows-server-2022".into(),
        cpus: 2,
        memory_mib: 4096,
        system_disk_gib: None,
        disks: Vec::new(),
        networks: Vec::new(),
        uefi: true,
        secure_boot: true,
        tpm: true,
        nested_virtualization: false,
        host_name: HostName::parse("win-1").unwrap(),
    }
}

fn image() -> Vec<u8> {
    (0..70_000u32).map(|n| (n % 251) as u8).collect()
}

fn seed() -> Seed {
    Seed::Drive(image())
}

async fn see(driver: &dyn Driver, key: &MachineKey) -> Observed {
    driver.observe(key, &Journal::new()).await.unwrap()
}

async fn present(driver: &dyn Driver, key: &MachineKey) -> Present {
    match see(driver, key).await {
        Observed::Present(present) => present,
        other => panic!("{key:?} is {other:?}"),
    }
}

async fn advance(driver: &dyn Driver, key: &MachineKey) -> Result<DriverStep, DriverError> {
    let observed = driver.observe(key, &Journal::new()).await?;
    driver.advance(key, &spec(), &seed(), &Journal::new(), &observed).await
}

async fn retire(driver: &dyn Driver, key: &MachineKey, how: StopMode) -> Result<DriverStep, DriverError> {
    let observed = driver.observe(key, &Journal::new()).await?;
    driver.retire(key, how, &Journal::new(), &observed).await
}

/// Advances until done, at most `limit` times; true if it was done.
async fn create(driver: &dyn Driver, key: &MachineKey, limit: usize) -> bool {
    for _ in 0..limit {
        match advance(driver, key).await.unwrap() {
            DriverStep::Done => return true,
            DriverStep::Wait { after } => sleep(after).await,
            DriverStep::Changed | DriverStep::Started { .. } => {}
        }
    }
    false
}

async fn delete(driver: &dyn Driver, key: &MachineKey, how: StopMode, limit: usize) -> bool {
    for _ in 0..limit {
        match retire(driver, key, how).await.unwrap() {
            DriverStep::Done => return true,
            DriverStep::Wait { after } => sleep(after).await,
            DriverStep::Changed | DriverStep::Started { .. } => {}
        }
    }
    false
}

const MANY: usize = 40;

/// Every behaviour, each at its own endpoint.
pub async fn all<B: TestEndpoint>(endpoint: impl Fn() -> B) {
    creates_and_deletes(&endpoint()).await;
    creating_again_changes_nothing(&endpoint()).await;
    creation_survives_an_abort_at_each_step(&endpoint).await;
    deletion_survives_an_abort_at_each_step(&endpoint).await;
    deletion_ends_a_creation_at_each_step(&endpoint).await;
    a_foreign_vm_is_left_alone(&endpoint()).await;
    a_vm_of_another_cluster_is_foreign(&endpoint()).await;
    a_missing_image_is_named(&endpoint()).await;
    every_call_reports_an_unreachable_endpoint_and_changes_nothing(&endpoint()).await;
    a_full_endpoint_refuses_new_machines_only(&endpoint()).await;
    owned_lists_exactly_ours(&endpoint()).await;
    seed::the_guest_finds_the_same_bytes(&endpoint()).await;
    seed::a_new_config_drive_replaces_an_unread_one(&endpoint()).await;
    seed::a_seed_that_was_read_goes_and_stays_away(&endpoint()).await;
    four_workers_make_one_vm(&endpoint()).await;
    four_workers_remove_one_vm(&endpoint()).await;
    leftovers_are_seen_and_removed(&endpoint()).await;
    creation_clears_leftovers(&endpoint()).await;
    a_vm_that_vanished_is_absent(&endpoint()).await;
    a_hard_stop_does_not_wait(&endpoint()).await;
    equal_names_do_not_mix(&endpoint()).await;
}

async fn creates_and_deletes(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("life"));
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
    driver.check(&spec()).await.unwrap();
    assert!(create(&*driver, &key, MANY).await);
    let vm = present(&*driver, &key).await;
    assert!(vm.vm && vm.seeded && vm.power == Power::On);
    assert!(delete(&*driver, &key, StopMode::Graceful, MANY).await);
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
    assert!(delete(&*driver, &key, StopMode::Graceful, 1).await, "deleting again is done at once");
    assert_eq!(endpoint.count().await, 0);
}

async fn creating_again_changes_nothing(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("twice"));
    assert!(create(&*driver, &key, MANY).await);
    let before = present(&*driver, &key).await;
    assert_eq!(advance(&*driver, &key).await, Ok(DriverStep::Done));
    assert_eq!(advance(&*endpoint.driver(), &key).await, Ok(DriverStep::Done));
    // The observation may be stale: the driver looks again before it acts.
    let stale = driver.advance(&key, &spec(), &seed(), &Journal::new(), &Observed::Absent).await;
    assert!(stale.is_ok());
    assert_eq!(present(&*driver, &key).await, before);
    assert_eq!(endpoint.count().await, 1);
}

async fn creation_survives_an_abort_at_each_step<B: TestEndpoint>(endpoint: &impl Fn() -> B) {
    let mut steps = 0;
    loop {
        let endpoint = endpoint();
        let key = key("abort");
        let done = create(&*endpoint.driver(), &key, steps).await;
        assert!(create(&*endpoint.driver(), &key, MANY).await, "after {steps} steps");
        assert_eq!(endpoint.count().await, 1, "after {steps} steps");
        if done {
            return;
        }
        steps += 1;
    }
}

async fn deletion_survives_an_abort_at_each_step<B: TestEndpoint>(endpoint: &impl Fn() -> B) {
    let mut steps = 0;
    loop {
        let endpoint = endpoint();
        let key = key("abort");
        assert!(create(&*endpoint.driver(), &key, MANY).await);
        let done = delete(&*endpoint.driver(), &key, StopMode::Graceful, steps).await;
        assert!(delete(&*endpoint.driver(), &key, StopMode::Graceful, MANY).await, "after {steps} steps");
        assert_eq!(endpoint.count().await, 0, "after {steps} steps");
        if done {
            return;
        }
        steps += 1;
    }
}

async fn deletion_ends_a_creation_at_each_step<B: TestEndpoint>(endpoint: &impl Fn() -> B) {
    for steps in 0.. {
        let endpoint = endpoint();
        let key = key("change-of-mind");
        let done = create(&*endpoint.driver(), &key, steps).await;
        assert!(delete(&*endpoint.driver(), &key, StopMode::Graceful, MANY).await, "after {steps} steps");
        assert_eq!(see(&*endpoint.driver(), &key).await, Observed::Absent);
        assert_eq!(endpoint.count().await, 0, "after {steps} steps");
        if done {
            return;
        }
    }
}

async fn a_foreign_vm_is_left_alone(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("foreign"));
    endpoint.occupy(&key).await;
    assert!(matches!(see(&*driver, &key).await, Observed::Foreign { is_marked: false, .. }));
    for result in [advance(&*driver, &key).await, retire(&*driver, &key, StopMode::Hard).await] {
        let error = result.unwrap_err();
        assert!(matches!(&error, DriverError::Conflict(text) if text.contains("left alone")), "{error}");
    }
    assert!(matches!(see(&*driver, &key).await, Observed::Foreign { .. }));
    assert_eq!(driver.owned().await.unwrap(), []);
    assert_eq!(endpoint.count().await, 1);
}

async fn a_vm_of_another_cluster_is_foreign(endpoint: &dyn TestEndpoint) {
    let (driver, ours) = (endpoint.driver(), key("shared"));
    assert!(create(&*driver, &ours, MANY).await);
    let theirs = MachineKey { cluster: "lab/two".into(), ..ours.clone() };
    assert!(matches!(see(&*driver, &theirs).await, Observed::Foreign { is_marked: true, .. }));
    assert!(matches!(retire(&*driver, &theirs, StopMode::Hard).await, Err(DriverError::Conflict(_))));
    assert_eq!(present(&*driver, &ours).await.power, Power::On);
}

async fn a_missing_image_is_named(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("image"));
    let wrong = VmSpec { image: "windows-3.11".into(), ..spec() };
    for result in
        [driver.check(&wrong).await.map(|()| DriverStep::Done), driver.advance(&key, &wrong, &seed(), &Journal::new(), &Observed::Absent).await]
    {
        let error = result.unwrap_err();
        assert!(matches!(&error, DriverError::NotFound(text) if text.contains("windows-3.11") && text.contains("windows-server-2022")), "{error}");
    }
    assert_eq!(endpoint.count().await, 0);
}

async fn every_call_reports_an_unreachable_endpoint_and_changes_nothing(endpoint: &dyn TestEndpoint) {
    let (driver, cut, key) = (endpoint.driver(), endpoint.unreachable(), key("cut"));
    assert!(create(&*driver, &key, MANY).await);
    let before = present(&*driver, &key).await;
    let (journal, seen) = (Journal::new(), Observed::Present(before.clone()));
    for error in [
        cut.describe().await.err(),
        cut.check(&spec()).await.err(),
        cut.observe(&key, &journal).await.err(),
        cut.plan(&key, &spec(), &journal).await.err(),
        cut.advance(&key, &spec(), &seed(), &journal, &seen).await.err(),
        cut.retire(&key, StopMode::Hard, &journal, &seen).await.err(),
        cut.owned().await.err(),
    ] {
        assert!(matches!(error, Some(DriverError::Unreachable(_))), "{error:?}");
    }
    assert_eq!(present(&*driver, &key).await, before);
}

async fn a_full_endpoint_refuses_new_machines_only(endpoint: &dyn TestEndpoint) {
    let driver = endpoint.small();
    assert!(create(&*driver, &key("one"), MANY).await && create(&*driver, &key("two"), MANY).await);
    let error = advance(&*driver, &key("three")).await.unwrap_err();
    assert!(matches!(error, DriverError::Capacity(_)), "{error}");
    assert_eq!(advance(&*driver, &key("one")).await, Ok(DriverStep::Done), "what exists needs no more room");
    assert!(delete(&*driver, &key("one"), StopMode::Hard, MANY).await);
    assert!(create(&*driver, &key("three"), MANY).await);
}

async fn owned_lists_exactly_ours(endpoint: &dyn TestEndpoint) {
    let driver = endpoint.driver();
    let ours: BTreeSet<String> = (0..7).map(|n| format!("vm-{n}")).collect();
    for name in &ours {
        assert!(create(&*driver, &key(name), MANY).await);
    }
    endpoint.occupy(&key("foreign")).await;
    endpoint.half_made(&key("half")).await;
    let listed = driver.owned().await.unwrap();
    assert!(listed.iter().all(|vm| vm.key == key(&vm.key.name) && vm.power == Power::On));
    assert_eq!(listed.into_iter().map(|vm| vm.key.name).collect::<BTreeSet<_>>(), ours);
}

async fn four_workers_make_one_vm(endpoint: &dyn TestEndpoint) {
    let key = key("race");
    let workers: Vec<_> = (0..4).map(|_| endpoint.driver()).collect();
    let done = futures::future::join_all(workers.iter().map(|driver| create(&**driver, &key, MANY))).await;
    assert_eq!(done, [true; 4]);
    assert_eq!(endpoint.count().await, 1);
    assert_eq!(endpoint.driver().owned().await.unwrap().len(), 1);
}

async fn four_workers_remove_one_vm(endpoint: &dyn TestEndpoint) {
    let key = key("race");
    assert!(create(&*endpoint.driver(), &key, MANY).await);
    let workers: Vec<_> = (0..4).map(|_| endpoint.driver()).collect();
    let done = futures::future::join_all(workers.iter().map(|driver| delete(&**driver, &key, StopMode::Graceful, MANY))).await;
    assert_eq!(done, [true; 4]);
    assert_eq!(endpoint.count().await, 0);
}

async fn leftovers_are_seen_and_removed(endpoint: &dyn TestEndpoint) {
    for half_removed in [false, true] {
        let (driver, key) = (endpoint.driver(), key("leftover"));
        if half_removed {
            endpoint.half_removed(&key).await
        } else {
            endpoint.half_made(&key).await
        }
        let seen = present(&*driver, &key).await;
        assert!(!seen.vm && seen.power == Power::Off && seen.addresses.is_empty(), "{seen:?}");
        assert!(delete(&*driver, &key, StopMode::Graceful, MANY).await);
        assert_eq!(see(&*driver, &key).await, Observed::Absent);
        assert_eq!(endpoint.count().await, 0);
    }
}

async fn creation_clears_leftovers(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("leftover"));
    endpoint.half_made(&key).await;
    endpoint.half_removed(&key).await;
    assert!(create(&*driver, &key, MANY).await);
    assert_eq!(endpoint.count().await, 1);
}

async fn a_vm_that_vanished_is_absent(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("vanished"));
    assert!(create(&*driver, &key, MANY).await);
    endpoint.remove_behind_its_back(&key).await;
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
    assert_eq!(driver.owned().await.unwrap(), []);
    assert!(delete(&*driver, &key, StopMode::Graceful, MANY).await);
}

async fn a_hard_stop_does_not_wait(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("hard"));
    assert!(create(&*driver, &key, MANY).await);
    let _ = retire(&*driver, &key, StopMode::Graceful).await.unwrap();
    for _ in 0..MANY {
        match retire(&*driver, &key, StopMode::Hard).await.unwrap() {
            DriverStep::Done => break,
            step => assert_eq!(step, DriverStep::Changed),
        }
    }
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
}

async fn equal_names_do_not_mix(endpoint: &dyn TestEndpoint) {
    let driver = endpoint.driver();
    let one = key("same");
    let two = MachineKey { vm: VmUuid::of("other"), cluster: "lab/two".into(), ..one.clone() };
    assert!(create(&*driver, &one, MANY).await && create(&*driver, &two, MANY).await);
    assert!(delete(&*driver, &one, StopMode::Hard, MANY).await);
    assert_eq!(present(&*driver, &two).await.power, Power::On);
    assert_eq!(endpoint.count().await, 1);
}
