//! What every driver owes, as functions over a [`Bench`]: a driver that is added brings a bench and calls [`all`].
//!
//! Nothing here knows a driver but the bench of the simulated one at the end.

mod seed;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::sleep;

use super::{Driver, DriverError, Step};
use crate::api::name::{HostName, VmUuid};
use crate::vm::{Journal, MachineKey, Observed, Power, Present, Seed, StopMode, VmSpec};

/// An endpoint for tests, with what only the driver's own test knows how to do to it.
#[async_trait]
pub trait Bench: Send + Sync {
    /// A new connection to the same endpoint, as another process would have it.
    fn driver(&self) -> Arc<dyn Driver>;
    /// The same endpoint behind a cut network.
    fn unreachable(&self) -> Arc<dyn Driver>;
    /// The same endpoint with room for exactly two machines of [`spec`].
    fn small(&self) -> Arc<dyn Driver>;
    /// Puts a VM of somebody else where that of `key` would be.
    async fn occupy(&self, key: &MachineKey);
    /// Makes what a kill in the middle of the create call leaves.
    async fn half_made(&self, key: &MachineKey);
    /// Makes what a kill in the middle of the remove call leaves.
    async fn half_removed(&self, key: &MachineKey);
    /// The bytes that the guest would find in its drive.
    async fn config_drive(&self, key: &MachineKey) -> Option<Vec<u8>>;
    /// Removes the VM behind the driver's back.
    async fn snatch(&self, key: &MachineKey);
    /// All there is at the endpoint, foreign things and leftovers included.
    async fn count(&self) -> usize;
}

fn key(name: &str) -> MachineKey {
    MachineKey { vm: VmUuid::of(name), cluster: "lab/one".into(), name: name.into() }
}

/// A machine as the tests make it.
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

async fn advance(driver: &dyn Driver, key: &MachineKey) -> Result<Step, DriverError> {
    let observed = driver.observe(key, &Journal::new()).await?;
    driver.advance(key, &spec(), &seed(), &Journal::new(), &observed).await
}

async fn retire(driver: &dyn Driver, key: &MachineKey, how: StopMode) -> Result<Step, DriverError> {
    let observed = driver.observe(key, &Journal::new()).await?;
    driver.retire(key, how, &Journal::new(), &observed).await
}

/// Steps until done, at most `limit`; true when it was done.
async fn create(driver: &dyn Driver, key: &MachineKey, limit: usize) -> bool {
    for _ in 0..limit {
        match advance(driver, key).await.unwrap() {
            Step::Done => return true,
            Step::Wait { after } => sleep(after).await,
            Step::Changed | Step::Started { .. } => {}
        }
    }
    false
}

async fn delete(driver: &dyn Driver, key: &MachineKey, how: StopMode, limit: usize) -> bool {
    for _ in 0..limit {
        match retire(driver, key, how).await.unwrap() {
            Step::Done => return true,
            Step::Wait { after } => sleep(after).await,
            Step::Changed | Step::Started { .. } => {}
        }
    }
    false
}

const MANY: usize = 40;

/// Every behaviour, each on a bench of its own.
pub async fn all<B: Bench>(bench: impl Fn() -> B) {
    creates_and_deletes(&bench()).await;
    creating_again_changes_nothing(&bench()).await;
    creation_survives_an_abort_at_each_step(&bench).await;
    deletion_survives_an_abort_at_each_step(&bench).await;
    deletion_ends_a_creation_at_each_step(&bench).await;
    a_foreign_vm_is_left_alone(&bench()).await;
    a_vm_of_another_cluster_is_foreign(&bench()).await;
    a_missing_image_is_named(&bench()).await;
    unreachable_is_said_by_every_call_and_changes_nothing(&bench()).await;
    there_is_room_or_there_is_not(&bench()).await;
    owned_lists_exactly_ours(&bench()).await;
    seed::the_guest_finds_the_very_bytes(&bench()).await;
    seed::a_new_config_drive_replaces_one_that_nobody_read(&bench()).await;
    seed::a_seed_that_was_read_goes_and_stays_away(&bench()).await;
    four_workers_make_one_vm(&bench()).await;
    four_workers_remove_one_vm(&bench()).await;
    leftovers_are_seen_and_removed(&bench()).await;
    creation_clears_leftovers(&bench()).await;
    a_vm_that_vanished_is_absent(&bench()).await;
    a_hard_stop_does_not_wait(&bench()).await;
    equal_names_do_not_mix(&bench()).await;
}

async fn creates_and_deletes(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("life"));
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
    driver.check(&spec()).await.unwrap();
    assert!(create(&*driver, &key, MANY).await);
    let vm = present(&*driver, &key).await;
    assert!(vm.vm && vm.seeded && vm.power == Power::On);
    assert!(delete(&*driver, &key, StopMode::Graceful, MANY).await);
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
    assert!(delete(&*driver, &key, StopMode::Graceful, 1).await, "deleting again is done at once");
    assert_eq!(bench.count().await, 0);
}

async fn creating_again_changes_nothing(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("twice"));
    assert!(create(&*driver, &key, MANY).await);
    let before = present(&*driver, &key).await;
    assert_eq!(advance(&*driver, &key).await, Ok(Step::Done));
    assert_eq!(advance(&*bench.driver(), &key).await, Ok(Step::Done));
    // What was observed may be old: the driver looks again before it acts.
    let stale = driver.advance(&key, &spec(), &seed(), &Journal::new(), &Observed::Absent).await;
    assert!(stale.is_ok());
    assert_eq!(present(&*driver, &key).await, before);
    assert_eq!(bench.count().await, 1);
}

async fn creation_survives_an_abort_at_each_step<B: Bench>(bench: &impl Fn() -> B) {
    let mut steps = 0;
    loop {
        let bench = bench();
        let key = key("abort");
        let done = create(&*bench.driver(), &key, steps).await;
        assert!(create(&*bench.driver(), &key, MANY).await, "after {steps} steps");
        assert_eq!(bench.count().await, 1, "after {steps} steps");
        if done {
            return;
        }
        steps += 1;
    }
}

async fn deletion_survives_an_abort_at_each_step<B: Bench>(bench: &impl Fn() -> B) {
    let mut steps = 0;
    loop {
        let bench = bench();
        let key = key("abort");
        assert!(create(&*bench.driver(), &key, MANY).await);
        let done = delete(&*bench.driver(), &key, StopMode::Graceful, steps).await;
        assert!(delete(&*bench.driver(), &key, StopMode::Graceful, MANY).await, "after {steps} steps");
        assert_eq!(bench.count().await, 0, "after {steps} steps");
        if done {
            return;
        }
        steps += 1;
    }
}

async fn deletion_ends_a_creation_at_each_step<B: Bench>(bench: &impl Fn() -> B) {
    for steps in 0.. {
        let bench = bench();
        let key = key("change-of-mind");
        let done = create(&*bench.driver(), &key, steps).await;
        assert!(delete(&*bench.driver(), &key, StopMode::Graceful, MANY).await, "after {steps} steps");
        assert_eq!(see(&*bench.driver(), &key).await, Observed::Absent);
        assert_eq!(bench.count().await, 0, "after {steps} steps");
        if done {
            return;
        }
    }
}

async fn a_foreign_vm_is_left_alone(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("foreign"));
    bench.occupy(&key).await;
    assert!(matches!(see(&*driver, &key).await, Observed::Foreign { .. }));
    for result in [advance(&*driver, &key).await, retire(&*driver, &key, StopMode::Hard).await] {
        let error = result.unwrap_err();
        assert!(matches!(&error, DriverError::Conflict(text) if text.contains("left alone")), "{error}");
    }
    assert!(matches!(see(&*driver, &key).await, Observed::Foreign { .. }));
    assert_eq!(driver.owned().await.unwrap(), []);
    assert_eq!(bench.count().await, 1);
}

async fn a_vm_of_another_cluster_is_foreign(bench: &dyn Bench) {
    let (driver, ours) = (bench.driver(), key("shared"));
    assert!(create(&*driver, &ours, MANY).await);
    let theirs = MachineKey { cluster: "lab/two".into(), ..ours.clone() };
    assert!(matches!(see(&*driver, &theirs).await, Observed::Foreign { .. }));
    assert!(matches!(retire(&*driver, &theirs, StopMode::Hard).await, Err(DriverError::Conflict(_))));
    assert_eq!(present(&*driver, &ours).await.power, Power::On);
}

async fn a_missing_image_is_named(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("image"));
    let wrong = VmSpec { image: "windows-3.11".into(), ..spec() };
    for result in [driver.check(&wrong).await.map(|()| Step::Done), driver.advance(&key, &wrong, &seed(), &Journal::new(), &Observed::Absent).await] {
        let error = result.unwrap_err();
        assert!(matches!(&error, DriverError::NotFound(text) if text.contains("windows-3.11") && text.contains("windows-server-2022")), "{error}");
    }
    assert_eq!(bench.count().await, 0);
}

async fn unreachable_is_said_by_every_call_and_changes_nothing(bench: &dyn Bench) {
    let (driver, cut, key) = (bench.driver(), bench.unreachable(), key("cut"));
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

async fn there_is_room_or_there_is_not(bench: &dyn Bench) {
    let driver = bench.small();
    assert!(create(&*driver, &key("one"), MANY).await && create(&*driver, &key("two"), MANY).await);
    let error = advance(&*driver, &key("three")).await.unwrap_err();
    assert!(matches!(error, DriverError::Capacity(_)), "{error}");
    assert_eq!(advance(&*driver, &key("one")).await, Ok(Step::Done), "what exists needs no more room");
    assert!(delete(&*driver, &key("one"), StopMode::Hard, MANY).await);
    assert!(create(&*driver, &key("three"), MANY).await);
}

async fn owned_lists_exactly_ours(bench: &dyn Bench) {
    let driver = bench.driver();
    let ours: BTreeSet<String> = (0..7).map(|n| format!("vm-{n}")).collect();
    for name in &ours {
        assert!(create(&*driver, &key(name), MANY).await);
    }
    bench.occupy(&key("foreign")).await;
    bench.half_made(&key("half")).await;
    let listed = driver.owned().await.unwrap();
    assert!(listed.iter().all(|vm| vm.key == key(&vm.key.name) && vm.power == Power::On));
    assert_eq!(listed.into_iter().map(|vm| vm.key.name).collect::<BTreeSet<_>>(), ours);
}

async fn four_workers_make_one_vm(bench: &dyn Bench) {
    let key = key("race");
    let workers: Vec<_> = (0..4).map(|_| bench.driver()).collect();
    let done = futures::future::join_all(workers.iter().map(|driver| create(&**driver, &key, MANY))).await;
    assert_eq!(done, [true; 4]);
    assert_eq!(bench.count().await, 1);
    assert_eq!(bench.driver().owned().await.unwrap().len(), 1);
}

async fn four_workers_remove_one_vm(bench: &dyn Bench) {
    let key = key("race");
    assert!(create(&*bench.driver(), &key, MANY).await);
    let workers: Vec<_> = (0..4).map(|_| bench.driver()).collect();
    let done = futures::future::join_all(workers.iter().map(|driver| delete(&**driver, &key, StopMode::Graceful, MANY))).await;
    assert_eq!(done, [true; 4]);
    assert_eq!(bench.count().await, 0);
}

async fn leftovers_are_seen_and_removed(bench: &dyn Bench) {
    for half_removed in [false, true] {
        let (driver, key) = (bench.driver(), key("leftover"));
        if half_removed {
            bench.half_removed(&key).await
        } else {
            bench.half_made(&key).await
        }
        let seen = present(&*driver, &key).await;
        assert!(!seen.vm && seen.power == Power::Off && seen.addresses.is_empty(), "{seen:?}");
        assert!(delete(&*driver, &key, StopMode::Graceful, MANY).await);
        assert_eq!(see(&*driver, &key).await, Observed::Absent);
        assert_eq!(bench.count().await, 0);
    }
}

async fn creation_clears_leftovers(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("leftover"));
    bench.half_made(&key).await;
    bench.half_removed(&key).await;
    assert!(create(&*driver, &key, MANY).await);
    assert_eq!(bench.count().await, 1);
}

async fn a_vm_that_vanished_is_absent(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("vanished"));
    assert!(create(&*driver, &key, MANY).await);
    bench.snatch(&key).await;
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
    assert_eq!(driver.owned().await.unwrap(), []);
    assert!(delete(&*driver, &key, StopMode::Graceful, MANY).await);
}

async fn a_hard_stop_does_not_wait(bench: &dyn Bench) {
    let (driver, key) = (bench.driver(), key("hard"));
    assert!(create(&*driver, &key, MANY).await);
    let _ = retire(&*driver, &key, StopMode::Graceful).await.unwrap();
    for _ in 0..MANY {
        match retire(&*driver, &key, StopMode::Hard).await.unwrap() {
            Step::Done => break,
            step => assert_eq!(step, Step::Changed),
        }
    }
    assert_eq!(see(&*driver, &key).await, Observed::Absent);
}

async fn equal_names_do_not_mix(bench: &dyn Bench) {
    let driver = bench.driver();
    let one = key("same");
    let two = MachineKey { vm: VmUuid::of("other"), cluster: "lab/two".into(), ..one.clone() };
    assert!(create(&*driver, &one, MANY).await && create(&*driver, &two, MANY).await);
    assert!(delete(&*driver, &one, StopMode::Hard, MANY).await);
    assert_eq!(present(&*driver, &two).await.power, Power::On);
    assert_eq!(bench.count().await, 1);
}
