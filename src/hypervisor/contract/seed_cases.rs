//! The contract for the seed: the bytes that a guest reads at its first start.

use super::endpoint::TestEndpoint;
use super::machine::{MANY, Machine, go_on};
use super::seed::of_bytes;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::{DriverError, DriverStep, Wanted};
use crate::vm::{Observed, Power, Present, Seed, Seeded, StopMode};

fn image(seed: &Seed) -> Option<SeedImage> {
    Some(SeedImage::from(seed))
}

pub(super) async fn the_guest_finds_the_same_bytes(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), Machine::at(endpoint, "bytes"));
    assert!(machine.create(&*driver, MANY).await);
    assert!(endpoint.seed(&machine.key).await == image(&machine.seed));
}

pub(super) async fn a_new_config_drive_replaces_an_unread_one(endpoint: &dyn TestEndpoint) {
    let (driver, new) = (endpoint.driver(), Machine::at(endpoint, "reseed"));
    let expired = of_bytes(endpoint.seed_kind(), b"expired");
    let mut old = Machine::at(endpoint, "reseed");
    old.seed = expired;
    for _ in 0..MANY {
        go_on(old.advance(&*driver).await).await;
        if matches!(old.see(&*driver).await, Observed::Present(vm) if vm.seeded == Seeded::Yes) {
            break;
        }
    }
    if new.present(&*driver).await.power != Power::On {
        assert!(new.create(&*driver, MANY).await);
        assert!(endpoint.seed(&new.key).await == image(&new.seed));
    }
    let given = endpoint.seed(&new.key).await;
    // Once the machine has run, its drive is not replaced: the guest has read it.
    assert_eq!((old.advance(&*driver).await, new.advance(&*driver).await), (Ok(DriverStep::Done), Ok(DriverStep::Done)));
    assert!(endpoint.seed(&new.key).await == given);
}

/// A driver that cannot detach a seed returns the reason; a driver that can leaves the rest of the machine unchanged.
pub(super) async fn a_seed_that_was_read_goes_and_stays_away(endpoint: &dyn TestEndpoint) {
    let (driver, machine) = (endpoint.driver(), Machine::at(endpoint, "read"));
    assert!(machine.create(&*driver, MANY).await);
    let before = machine.present(&*driver).await;
    let listed = async || driver.list(&Wanted::default()).await.unwrap().rows.into_iter().map(|row| row.present.seeded).collect::<Vec<_>>();
    assert_eq!((before.seeded, listed().await), (Seeded::Yes, vec![Seeded::Yes]));
    for _ in 0..MANY {
        match machine.detach(&*driver).await {
            Ok(DriverStep::Done) => break,
            Err(DriverError::Invalid(why)) => {
                assert!(why.len() > 20 && machine.present(&*driver).await == before, "{why}");
                return;
            }
            other => go_on(other).await,
        }
    }
    assert_eq!(machine.present(&*driver).await, Present { seeded: Seeded::No, ..before });
    assert!(endpoint.seed(&machine.key).await.is_none(), "the image itself is gone, not only detached");
    assert_eq!(listed().await, [Seeded::No]);
    assert_eq!(machine.advance(&*driver).await, Ok(DriverStep::Done));
    assert_eq!(machine.present(&*driver).await.seeded, Seeded::No, "it is not attached again");
    assert!(machine.delete(&*driver, StopMode::Hard, MANY).await && endpoint.count().await == 0);
    // A foreign VM keeps what it has.
    endpoint.occupy(&machine.key).await;
    let foreign = machine.detach(&*driver).await;
    assert!(matches!(foreign, Ok(DriverStep::Done) | Err(DriverError::Conflict(_))), "{foreign:?}");
}
