//! The contract for the seed: the bytes that a guest reads at its first start.

use tokio::time::sleep;

use super::{MANY, TestEndpoint, advance, create, delete, image, key, present, see, spec};
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Journal, Observed, Power, Present, Seed, StopMode};

pub(super) async fn the_guest_finds_the_same_bytes(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("bytes"));
    assert!(create(&*driver, &key, MANY).await);
    assert!(endpoint.config_drive(&key).await == Some(image()));
}

pub(super) async fn a_new_config_drive_replaces_an_unread_one(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("reseed"));
    let old = Seed::Drive(b"expired".to_vec());
    for _ in 0..MANY {
        let step = driver.advance(&key, &spec(), &old, &Journal::new(), &see(&*driver, &key).await).await.unwrap();
        if let DriverStep::Wait { after } = step {
            sleep(after).await;
        }
        let seen = see(&*driver, &key).await;
        if matches!(&seen, Observed::Present(vm) if vm.seeded) {
            break;
        }
    }
    if present(&*driver, &key).await.power != Power::On {
        assert!(create(&*driver, &key, MANY).await);
        assert!(endpoint.config_drive(&key).await == Some(image()));
    }
    // Once the machine has run, its drive is not replaced: the guest has read it.
    assert_eq!(driver.advance(&key, &spec(), &old, &Journal::new(), &see(&*driver, &key).await).await, Ok(DriverStep::Done));
    assert!(endpoint.config_drive(&key).await == Some(image()));
}

/// A driver that cannot detach a seed says why; one that can leaves the machine as it was.
pub(super) async fn a_seed_that_was_read_goes_and_stays_away(endpoint: &dyn TestEndpoint) {
    let (driver, key) = (endpoint.driver(), key("read"));
    assert!(create(&*driver, &key, MANY).await);
    let before = present(&*driver, &key).await;
    assert!(before.seeded && driver.owned().await.unwrap().iter().all(|vm| vm.seeded));
    for _ in 0..MANY {
        match driver.detach(&key, &Journal::new(), &see(&*driver, &key).await).await {
            Ok(DriverStep::Done) => break,
            Ok(DriverStep::Wait { after }) => sleep(after).await,
            Ok(DriverStep::Changed | DriverStep::Started { .. }) => {}
            Err(DriverError::Invalid(why)) => {
                assert!(why.len() > 20 && present(&*driver, &key).await == before, "{why}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(present(&*driver, &key).await, Present { seeded: false, ..before });
    assert!(endpoint.config_drive(&key).await.is_none(), "the image itself is gone, not only detached");
    assert!(driver.owned().await.unwrap().iter().all(|vm| !vm.seeded));
    assert_eq!(advance(&*driver, &key).await, Ok(DriverStep::Done));
    assert!(!present(&*driver, &key).await.seeded, "it is not attached again");
    assert!(delete(&*driver, &key, StopMode::Hard, MANY).await && endpoint.count().await == 0);
    // A foreign VM keeps what it has.
    endpoint.occupy(&key).await;
    let foreign = driver.detach(&key, &Journal::new(), &see(&*driver, &key).await).await;
    assert!(matches!(foreign, Ok(DriverStep::Done) | Err(DriverError::Conflict(_))), "{foreign:?}");
}
