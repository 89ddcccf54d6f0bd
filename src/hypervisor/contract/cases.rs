//! The cases of the contract.

use std::collections::BTreeSet;

use super::endpoint::TestEndpoint;
use super::machine::{MANY, Machine};
use super::{cuts, seed_cases};
use crate::api::name::VmUuid;
use crate::hypervisor::{DriverError, DriverStep, Wanted};
use crate::vm::{Journal, Observed, Power, StopMode, Thing};

/// Tests every behaviour, each at its own endpoint.
pub async fn all<B: TestEndpoint>(endpoint: impl Fn() -> B) {
    creates_and_deletes(&endpoint()).await;
    creating_again_changes_nothing(&endpoint()).await;
    creation_survives_an_abort_at_each_step(&endpoint).await;
    deletion_survives_an_abort_at_each_step(&endpoint).await;
    deletion_ends_a_creation_at_each_step(&endpoint).await;
    a_lost_journal_is_no_lost_vm(&endpoint()).await;
    a_foreign_vm_is_left_alone(&endpoint()).await;
    a_vm_of_another_cluster_is_foreign(&endpoint()).await;
    a_missing_image_is_named(&endpoint()).await;
    every_call_reports_an_unreachable_endpoint_and_changes_nothing(&endpoint()).await;
    a_full_endpoint_refuses_new_machines_only(&endpoint()).await;
    it_lists_exactly_ours_and_always_the_same(&endpoint()).await;
    seed_cases::the_guest_finds_the_same_bytes(&endpoint()).await;
    seed_cases::a_new_config_drive_replaces_an_unread_one(&endpoint()).await;
    seed_cases::a_seed_that_was_read_goes_and_stays_away(&endpoint()).await;
    four_workers_make_one_vm(&endpoint()).await;
    four_workers_remove_one_vm(&endpoint()).await;
    if endpoint().has_parts() {
        leftovers_are_listed_and_removed(&endpoint()).await;
        creation_clears_leftovers(&endpoint()).await;
    }
    a_vm_that_vanished_is_absent(&endpoint()).await;
    a_hard_stop_ends_a_graceful_one(&endpoint()).await;
    equal_and_long_names_do_not_mix(&endpoint()).await;
    it_says_who_it_is(&endpoint()).await;
}

/// Runs a life for every request that may be lost: the longest part.
pub async fn any_request_may_be_lost<B: TestEndpoint>(endpoint: impl Fn() -> B) {
    cuts::any_request_may_be_lost(&endpoint()).await;
}

fn machine(endpoint: &dyn TestEndpoint, name: &str) -> Machine {
    Machine::at(endpoint, name)
}

async fn creates_and_deletes(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "life"));
    assert_eq!(machine.see(&*driver).await, Observed::Absent);
    assert!(machine.create(&*driver, MANY).await);
    let vm = machine.present(&*driver).await;
    assert!(vm.vm && vm.seeded == crate::vm::Seeded::Yes && vm.power == Power::On && vm.trouble.is_none());
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(machine.see(&*driver).await, Observed::Absent);
    assert!(machine.delete(&*driver, StopMode::Hard, 1).await, "deleting again is done at once");
    assert_eq!(endpoint.count().await, 0);
}

async fn creating_again_changes_nothing(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "twice"));
    assert!(machine.create(&*driver, MANY).await);
    let before = machine.present(&*driver).await;
    assert_eq!(machine.advance(&*driver).await, Ok(DriverStep::Done));
    assert_eq!(machine.advance(&*endpoint.driver()).await, Ok(DriverStep::Done));
    // The observation may be stale: the driver checks again before it acts.
    let stale = driver.advance(&machine.key, &machine.spec, &machine.seed, &Journal::new(), &Observed::Absent).await;
    assert!(stale.is_ok(), "{stale:?}");
    assert_eq!(machine.present(&*driver).await, before);
    assert_eq!(endpoint.count().await, 1);
}

async fn creation_survives_an_abort_at_each_step<B: TestEndpoint>(endpoint: &impl Fn() -> B) {
    for steps in 0.. {
        let endpoint = endpoint();
        let machine = machine(&endpoint, "abort");
        let done = machine.create(&*endpoint.driver(), steps).await;
        assert!(machine.create(&*endpoint.driver(), MANY).await, "after {steps} steps");
        assert_eq!(endpoint.count().await, 1, "after {steps} steps");
        if done {
            return;
        }
    }
}

async fn deletion_survives_an_abort_at_each_step<B: TestEndpoint>(endpoint: &impl Fn() -> B) {
    for steps in 0.. {
        let endpoint = endpoint();
        let machine = machine(&endpoint, "abort");
        assert!(machine.create(&*endpoint.driver(), MANY).await);
        let done = machine.delete(&*endpoint.driver(), StopMode::Hard, steps).await;
        assert!(machine.delete(&*endpoint.driver(), StopMode::Hard, MANY).await, "after {steps} steps");
        assert_eq!(endpoint.count().await, 0, "after {steps} steps");
        if done {
            return;
        }
    }
}

async fn deletion_ends_a_creation_at_each_step<B: TestEndpoint>(endpoint: &impl Fn() -> B) {
    for steps in 0.. {
        let endpoint = endpoint();
        let machine = machine(&endpoint, "change-of-mind");
        let done = machine.create(&*endpoint.driver(), steps).await;
        assert!(machine.delete(&*endpoint.driver(), StopMode::Hard, MANY).await, "after {steps} steps");
        assert_eq!(machine.see(&*endpoint.driver()).await, Observed::Absent);
        assert_eq!(endpoint.count().await, 0, "after {steps} steps");
        if done {
            return;
        }
    }
}

async fn a_lost_journal_is_no_lost_vm(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "moved"));
    assert!(machine.create(&*driver, MANY).await);
    machine.lose_journal();
    assert_eq!(machine.present(&*driver).await.power, Power::On);
    assert_eq!(machine.advance(&*driver).await, Ok(DriverStep::Done));
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(endpoint.count().await, 0);
}

async fn a_foreign_vm_is_left_alone(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "foreign"));
    endpoint.occupy(&machine.key).await;
    assert!(matches!(machine.see(&*driver).await, Observed::Foreign { is_marked: false, .. }));
    for result in [machine.advance(&*driver).await, machine.retire(&*driver, StopMode::Hard).await] {
        let error = result.unwrap_err();
        assert!(matches!(&error, DriverError::Conflict(text) if text.contains("left alone")), "{error}");
    }
    assert!(matches!(machine.see(&*driver).await, Observed::Foreign { .. }));
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert_eq!(endpoint.count().await, 1);
}

async fn a_vm_of_another_cluster_is_foreign(endpoint: &dyn TestEndpoint) {
    let (driver, ours) = (endpoint.driver(), machine(endpoint, "shared"));
    assert!(ours.create(&*driver, MANY).await);
    let mut theirs = machine(endpoint, "shared");
    theirs.key.cluster = "lab/two".into();
    assert!(matches!(theirs.see(&*driver).await, Observed::Foreign { is_marked: true, .. }));
    assert!(matches!(theirs.retire(&*driver, StopMode::Hard).await, Err(DriverError::Conflict(_))));
    assert_eq!(ours.present(&*driver).await.power, Power::On);
}

async fn a_missing_image_is_named(endpoint: &dyn TestEndpoint) {
    let (driver, mut machine) = (endpoint.driver(), machine(endpoint, "image"));
    machine.spec.image = "windows-3.11".into();
    let advanced = driver.advance(&machine.key, &machine.spec, &machine.seed, &Journal::new(), &Observed::Absent).await;
    for error in [driver.check(&machine.spec, machine.seed.kind()).await.err(), advanced.err()] {
        let is_named = |text: &str| text.contains("windows-3.11") && text.contains("windows-server-2022");
        assert!(matches!(&error, Some(DriverError::Missing { thing: Thing::Image, text }) if is_named(text)), "{error:?}");
    }
    assert_eq!(endpoint.count().await, 0);
}

async fn every_call_reports_an_unreachable_endpoint_and_changes_nothing(endpoint: &dyn TestEndpoint) {
    let (driver, cut, machine) = (endpoint.driver(), endpoint.unreachable(), machine(endpoint, "cut"));
    assert!(machine.create(&*driver, MANY).await);
    let before = machine.present(&*driver).await;
    let (key, spec, seed, journal, seen) = (&machine.key, &machine.spec, &machine.seed, Journal::new(), Observed::Present(before.clone()));
    for error in [
        cut.describe().await.err(),
        cut.check(spec, seed.kind()).await.err(),
        cut.observe(key, &journal).await.err(),
        cut.advance(key, spec, seed, &journal, &seen).await.err(),
        cut.detach(key, &journal).await.err(),
        cut.retire(key, StopMode::Hard, &journal, &seen).await.err(),
        cut.list(&Wanted::default()).await.err(),
    ] {
        assert!(matches!(error, Some(DriverError::Unreachable(_))), "{error:?}");
    }
    assert_eq!(machine.present(&*driver).await, before);
}

async fn a_full_endpoint_refuses_new_machines_only(endpoint: &dyn TestEndpoint) {
    let Some(driver) = endpoint.small() else { return };
    let [one, two, three] = ["one", "two", "three"].map(|name| machine(endpoint, name));
    assert!(one.create(&*driver, MANY).await && two.create(&*driver, MANY).await);
    let error = three.advance(&*driver).await.unwrap_err();
    assert!(matches!(error, DriverError::Capacity(_)), "{error}");
    assert_eq!(one.advance(&*driver).await, Ok(DriverStep::Done), "what exists needs no more room");
    assert!(one.delete(&*driver, StopMode::Hard, MANY).await);
    assert!(three.create(&*driver, MANY).await);
}

async fn it_lists_exactly_ours_and_always_the_same(endpoint: &dyn TestEndpoint) {
    let driver = endpoint.driver();
    let ours: BTreeSet<String> = (0..5).map(|n| format!("vm-{n}")).collect();
    for name in &ours {
        assert!(machine(endpoint, name).create(&*driver, MANY).await);
    }
    endpoint.occupy(&machine(endpoint, "foreign").key).await;
    if endpoint.has_parts() {
        endpoint.half_made(&machine(endpoint, "half").key).await;
    }
    let wanted = Wanted { awaiting_reports: ours.iter().map(|name| VmUuid::of(name)).collect() };
    let listing = driver.list(&wanted).await.unwrap();
    let spec = endpoint.spec();
    for row in &listing.rows {
        assert_eq!(row.key, machine(endpoint, &row.key.name).key);
        assert_eq!((row.present.power, row.cpus, row.memory_mib), (Power::On, spec.cpus, spec.memory_mib));
    }
    assert_eq!(listing.rows.iter().map(|row| row.key.name.clone()).collect::<BTreeSet<_>>(), ours);
    assert_eq!(listing.leftovers.len(), usize::from(endpoint.has_parts()), "{:?}", listing.leftovers);
    assert_eq!((driver.list(&wanted).await.unwrap(), endpoint.driver().list(&wanted).await.unwrap()), (listing.clone(), listing));
}

async fn four_workers_make_one_vm(endpoint: &dyn TestEndpoint) {
    let machine = machine(endpoint, "race");
    let workers: Vec<_> = (0..4).map(|_| endpoint.driver()).collect();
    let done = futures::future::join_all(workers.iter().map(|driver| machine.create(&**driver, MANY))).await;
    assert_eq!(done, [true; 4]);
    assert_eq!(endpoint.count().await, 1);
    assert_eq!(endpoint.driver().list(&Wanted::default()).await.unwrap().rows.len(), 1);
}

async fn four_workers_remove_one_vm(endpoint: &dyn TestEndpoint) {
    let machine = machine(endpoint, "race");
    assert!(machine.create(&*endpoint.driver(), MANY).await);
    let workers: Vec<_> = (0..4).map(|_| endpoint.driver()).collect();
    let done = futures::future::join_all(workers.iter().map(|driver| machine.delete(&**driver, StopMode::Hard, MANY))).await;
    assert_eq!(done, [true; 4]);
    assert_eq!(endpoint.count().await, 0);
}

async fn leftovers_are_listed_and_removed(endpoint: &dyn TestEndpoint) {
    for half_removed in [false, true] {
        let (driver, machine) = (endpoint.driver(), machine(endpoint, "leftover"));
        if half_removed {
            endpoint.half_removed(&machine.key).await
        } else {
            endpoint.half_made(&machine.key).await
        }
        let seen = machine.present(&*driver).await;
        assert!(!seen.vm && seen.power == Power::Off && seen.addresses.is_empty(), "{seen:?}");
        let listing = driver.list(&Wanted::default()).await.unwrap();
        assert!(listing.rows.is_empty() && !listing.leftovers.is_empty(), "{listing:?}");
        assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
        assert_eq!(machine.see(&*driver).await, Observed::Absent);
        assert!(driver.list(&Wanted::default()).await.unwrap().leftovers.is_empty());
        assert_eq!(endpoint.count().await, 0);
    }
}

async fn creation_clears_leftovers(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "leftover"));
    endpoint.half_made(&machine.key).await;
    endpoint.half_removed(&machine.key).await;
    assert!(machine.create(&*driver, MANY).await);
    assert_eq!(endpoint.count().await, 1);
    assert!(driver.list(&Wanted::default()).await.unwrap().leftovers.is_empty());
}

async fn a_vm_that_vanished_is_absent(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "vanished"));
    assert!(machine.create(&*driver, MANY).await);
    endpoint.remove_behind_its_back(&machine.key).await;
    assert!(matches!(machine.see(&*driver).await, Observed::Absent | Observed::Present(crate::vm::Present { vm: false, .. })));
    assert_eq!(driver.list(&Wanted::default()).await.unwrap().rows, []);
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(endpoint.count().await, 0);
}

/// A guest that ignores the shutdown is switched off.
async fn a_hard_stop_ends_a_graceful_one(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), machine(endpoint, "hard"));
    assert!(machine.create(&*driver, MANY).await);
    let _ = machine.retire(&*driver, StopMode::Graceful).await.unwrap();
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(machine.see(&*driver).await, Observed::Absent);
}

async fn equal_and_long_names_do_not_mix(endpoint: &dyn TestEndpoint) {
    let driver = endpoint.driver();
    let mut one = machine(endpoint, "same");
    let mut two = machine(endpoint, "other");
    two.key.cluster = "lab/two".into();
    for machine in [&mut one, &mut two] {
        machine.key.name = "x".repeat(253);
    }
    assert!(one.create(&*driver, MANY).await && two.create(&*driver, MANY).await);
    let listed: Vec<_> = driver.list(&Wanted::default()).await.unwrap().rows.into_iter().map(|row| row.key).collect();
    assert!(listed.len() == 2 && listed.contains(&one.key) && listed.contains(&two.key), "{listed:?}");
    assert!(one.delete(&*driver, StopMode::Hard, MANY).await);
    assert_eq!(two.present(&*driver).await.power, Power::On);
    assert_eq!(endpoint.count().await, 1);
}

async fn it_says_who_it_is(endpoint: &dyn TestEndpoint) {
    let described = endpoint.driver().describe().await.unwrap();
    assert!(!described.id.is_empty() && !described.version.is_empty() && described.lacks.is_empty(), "{described:?}");
    assert_eq!(endpoint.driver().describe().await.unwrap().id, described.id, "the same for every connection");
}
