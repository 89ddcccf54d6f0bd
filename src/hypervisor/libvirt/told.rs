//! What the daemon tells by itself: that a VM has stopped, or does not run as it should. Until it does, a VM that it has just called running
//! runs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::client::LifecycleEvent;
use super::domain::may_be_ours;
use crate::api::name::VmUuid;
use crate::vm::{MachineKey, Present};

/// What one daemon has told, over all its connections.
pub struct Told {
    /// `None` while the request is under way whose answer will say that the VM runs.
    running: Mutex<HashMap<VmUuid, Option<Running>>>,
    stops: watch::Sender<()>,
}

struct Running {
    key: MachineKey,
    present: Present,
    until: Instant,
}

impl Default for Told {
    fn default() -> Self {
        Self { running: Mutex::default(), stops: watch::Sender::new(()) }
    }
}

impl Told {
    fn running(&self) -> MutexGuard<'_, HashMap<VmUuid, Option<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes before a request that says whether a VM runs: what the daemon tells from now on counts more than the answer.
    pub fn await_answer(&self, vm: VmUuid) {
        self.running().insert(vm, None);
    }

    /// The answer: the VM is so, and stays so for that time unless the daemon tells otherwise.
    pub fn runs(&self, key: &MachineKey, present: Present, time: Duration) {
        if let Some(slot) = self.running().get_mut(&key.vm) {
            *slot = Some(Running { key: key.clone(), present, until: Instant::now() + time });
        }
    }

    /// The VM, if it is known to run, and as the VM of that machine.
    pub fn of(&self, key: &MachineKey) -> Option<Present> {
        let running = self.running();
        let running = running.get(&key.vm)?.as_ref()?;
        (running.key == *key && Instant::now() < running.until).then(|| running.present.clone())
    }

    pub fn forget(&self, vm: VmUuid) {
        self.running().remove(&vm);
    }

    /// Takes what the daemon tells. It ends what was known of the VM, and is worth a look unless there is one soon anyway.
    pub fn take(&self, event: &LifecycleEvent) {
        if !event.ends_running() || !may_be_ours(&event.domain.name, event.domain.uuid) {
            return;
        }
        let known = self.running().remove(&VmUuid(event.domain.uuid));
        let is_looked_at_soon = known.is_some_and(|running| running.is_none_or(|running| Instant::now() < running.until));
        if !is_looked_at_soon {
            self.stops.send_replace(());
        }
    }

    /// A new connection: what was told meanwhile was missed.
    pub fn missed(&self) {
        self.running().clear();
        self.stops.send_replace(());
    }

    /// An item for each time that something has stopped; many at once are one.
    pub fn hints(&self) -> BoxStream<'static, ()> {
        let changes = self.stops.subscribe();
        stream::unfold(changes, |mut changes| async { changes.changed().await.is_ok().then_some(((), changes)) }).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use uuid::Uuid;

    use super::*;
    use crate::hypervisor::libvirt::client::Domain;
    use crate::vm::{Power, Seeded};

    const TIME: Duration = Duration::from_secs(30);

    fn vm() -> VmUuid {
        VmUuid(Uuid::from_u128(0x3f25_04e0_4f89_41d3_9a0c_0305_e82c_3301))
    }

    fn key() -> MachineKey {
        MachineKey { vm: vm(), cluster: "lab/one".into(), name: "win-1".into() }
    }

    fn event(kind: u32) -> LifecycleEvent {
        LifecycleEvent { domain: Domain { name: "win-1-3f2504e0".into(), uuid: vm().0 }, kind }
    }

    fn present() -> Present {
        Present { power: Power::On, seeded: Seeded::from_attached(true), vm: true, addresses: Vec::new(), report: None, trouble: None, warning: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_runs_until_it_is_told_otherwise_or_for_its_time() {
        let told = Told::default();
        told.runs(&key(), present(), TIME);
        assert_eq!(told.of(&key()), None, "its answer was not awaited");
        told.await_answer(vm());
        assert_eq!(told.of(&key()), None);
        told.runs(&key(), present(), TIME);
        for starts in [0, 2, 4, 6] {
            told.take(&event(starts));
            assert_eq!(told.of(&key()), Some(present()), "{starts}");
        }
        assert_eq!(told.of(&MachineKey { cluster: "lab/two".into(), ..key() }), None, "it is another one's");
        tokio::time::advance(TIME).await;
        assert_eq!(told.of(&key()), None);
        for ends in [1, 3, 5, 7, 8] {
            told.await_answer(vm());
            told.runs(&key(), present(), TIME);
            told.take(&event(ends));
            assert_eq!(told.of(&key()), None, "{ends}");
            told.await_answer(vm());
            told.take(&event(ends));
            told.runs(&key(), present(), TIME);
            assert_eq!(told.of(&key()), None, "it came before the answer");
        }
        told.await_answer(vm());
        told.runs(&key(), present(), TIME);
        told.missed();
        assert_eq!(told.of(&key()), None);
    }

    #[tokio::test]
    async fn only_a_stop_that_was_not_expected_is_worth_a_look() {
        let told = Told::default();
        let mut hints = told.hints();
        told.await_answer(vm());
        told.take(&event(5));
        assert_eq!(hints.next().now_or_never(), None, "its answer is looked at");
        told.await_answer(vm());
        told.runs(&key(), present(), TIME);
        told.take(&event(5));
        assert_eq!(hints.next().now_or_never(), None, "it is looked at soon");
        told.await_answer(vm());
        told.runs(&key(), present(), Duration::ZERO);
        told.take(&event(5));
        assert_eq!(hints.next().now_or_never(), Some(Some(())), "its time is over");
        let other = LifecycleEvent { domain: Domain { name: "postgres".into(), uuid: Uuid::nil() }, kind: 5 };
        told.take(&other);
        assert_eq!(hints.next().now_or_never(), None, "it is none of ours");
        told.take(&event(5));
        told.take(&event(1));
        assert_eq!(hints.next().now_or_never(), Some(Some(())));
        assert_eq!(hints.next().now_or_never(), None, "two at once are one");
    }
}
