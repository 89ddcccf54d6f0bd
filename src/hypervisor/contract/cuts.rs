//! A cut before, and a lost reply after, every single request of a life: one VM, then none, and no leftovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::endpoint::TestEndpoint;
use super::machine::{MANY, Machine, go_on};
use crate::hypervisor::wire::{Fate, WireHook};
use crate::hypervisor::{Driver, DriverError, DriverStep};
use crate::vm::{Observed, Power, Seeded, StopMode};

/// Creates a hook that gives one request a fate; the second value counts all requests.
fn cut(number: u64, fate: Fate) -> (WireHook, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let seen = count.clone();
    (Arc::new(move |_| if seen.fetch_add(1, Ordering::SeqCst) + 1 == number { fate } else { Fate::Pass }), count)
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Create,
    Detach,
    Delete,
}

impl Stage {
    async fn step(self, machine: &Machine, driver: &dyn Driver) -> Result<DriverStep, DriverError> {
        match self {
            Self::Create => machine.advance(driver).await,
            Self::Detach => machine.detach(driver).await,
            Self::Delete => machine.retire(driver, StopMode::Hard).await,
        }
    }

    /// Steps until the stage is done, or until the first error.
    async fn until_cut(self, machine: &Machine, driver: &dyn Driver) {
        for _ in 0..MANY {
            match self.step(machine, driver).await {
                Ok(DriverStep::Done) => return,
                Ok(DriverStep::Wait { after }) => tokio::time::sleep(after).await,
                Ok(_) => {}
                Err(error) => {
                    assert!(matches!(error, DriverError::Unreachable(_) | DriverError::Unknown(_)), "{self:?}: {error}");
                    return;
                }
            }
        }
        panic!("{self:?} does not end");
    }

    async fn to_the_end(self, machine: &Machine, driver: &dyn Driver) {
        for _ in 0..MANY {
            match self.step(machine, driver).await {
                Ok(DriverStep::Done) => return,
                other => go_on(other).await,
            }
        }
        panic!("{self:?} does not end");
    }
}

pub(super) async fn any_request_may_be_lost(endpoint: &dyn TestEndpoint) {
    for stage in [Stage::Create, Stage::Detach, Stage::Delete] {
        for fate in [Fate::DropRequest, Fate::DropReply] {
            for number in 1.. {
                let machine = Machine::at(endpoint, &format!("cut-{stage:?}-{fate:?}-{number}").to_lowercase());
                let whole = endpoint.driver();
                match stage {
                    Stage::Create => {}
                    Stage::Detach | Stage::Delete => Stage::Create.to_the_end(&machine, &*whole).await,
                }
                let (hook, count) = cut(number, fate);
                stage.until_cut(&machine, &*endpoint.wired(hook)).await;
                // Another process continues.
                stage.to_the_end(&machine, &*whole).await;
                let place = format!("{stage:?}, {fate:?} at request {number}");
                match stage {
                    Stage::Create => assert_eq!(machine.present(&*whole).await.power, Power::On, "{place}"),
                    Stage::Detach => assert_eq!(machine.present(&*whole).await.seeded, Seeded::No, "{place}"),
                    Stage::Delete => assert_eq!(machine.see(&*whole).await, Observed::Absent, "{place}"),
                }
                let made = usize::from(!matches!(stage, Stage::Delete));
                assert_eq!(endpoint.count().await, made, "{place}");
                assert!(whole.list(&Default::default()).await.unwrap().leftovers.is_empty(), "{place}");
                assert!(machine.delete(&*whole, StopMode::Hard, MANY).await, "{place}");
                assert_eq!(endpoint.count().await, 0, "{place}: something is left");
                if count.load(Ordering::SeqCst) < number {
                    break;
                }
            }
        }
    }
}
