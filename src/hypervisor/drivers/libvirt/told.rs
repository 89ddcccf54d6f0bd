//! The VM states that follow from events of the daemon: a VM has stopped, has restarted, was removed, or does not run as it should. Until
//! such an event, a VM that the daemon has just reported as running counts as running.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::domain::may_be_ours;
use super::events::{Event, What};
use crate::api::name::VmUuid;
use crate::vm::{MachineKey, Present};

/// The events of one daemon, over all its connections.
pub struct Told {
    known: Mutex<HashMap<VmUuid, Known>>,
    restarted: Mutex<HashSet<VmUuid>>,
    changes: watch::Sender<()>,
}

/// The known state of a VM.
enum Known {
    /// A request is under way whose answer will show whether the VM runs.
    Awaited,
    Running(Box<Running>),
    /// The VM has stopped, as expected.
    Stopped,
}

struct Running {
    key: MachineKey,
    present: Present,
    until: Instant,
    /// Whether the guest got a shutdown request, so that a pass waits for its end.
    is_to_stop: bool,
}

impl Default for Told {
    fn default() -> Self {
        Self { known: Mutex::default(), restarted: Mutex::default(), changes: watch::Sender::new(()) }
    }
}

impl Told {
    /// Prepares for a request that shows whether a VM runs: an event from now on overrides the answer.
    pub fn await_answer(&self, vm: VmUuid) {
        self.known.lock().insert(vm, Known::Awaited);
    }

    /// Stores the answer: the VM stays in that state for that time, unless an event ends it.
    pub fn runs(&self, key: &MachineKey, present: Present, time: Duration) {
        self.answered(key, present, time, false);
    }

    /// Stores the answer for a VM whose guest got a shutdown request.
    pub fn shuts_down(&self, key: &MachineKey, present: Present, time: Duration) {
        self.answered(key, present, time, true);
    }

    fn answered(&self, key: &MachineKey, present: Present, time: Duration, is_to_stop: bool) {
        if let Some(known @ Known::Awaited) = self.known.lock().get_mut(&key.vm) {
            *known = Known::Running(Box::new(Running { key: key.clone(), present, until: Instant::now() + time, is_to_stop }));
        }
    }

    /// Returns the state of the machine's VM, if it is known to run.
    pub fn of(&self, key: &MachineKey) -> Option<Present> {
        match self.known.lock().get(&key.vm) {
            Some(Known::Running(running)) if running.key == *key && Instant::now() < running.until => Some(running.present.clone()),
            _ => None,
        }
    }

    pub fn forget(&self, vm: VmUuid) {
        self.known.lock().remove(&vm);
    }

    /// Returns the VMs that have started or restarted since the last call.
    pub fn restarted(&self) -> HashSet<VmUuid> {
        std::mem::take(&mut self.restarted.lock())
    }

    /// Handles an event of the daemon. An event is a hint unless a pass of this process expects it and checks anyway.
    pub fn take(&self, event: &Event) {
        if !may_be_ours(&event.domain.name, event.domain.uuid) {
            return;
        }
        let vm = VmUuid(event.domain.uuid);
        let is_expected = match event.what {
            What::Other => return,
            What::Rebooted => false,
            What::Started => self.known.lock().contains_key(&vm),
            What::Stopped | What::Removed => self.ended(vm, event.what == What::Removed),
        };
        if matches!(event.what, What::Started | What::Rebooted) {
            self.restarted.lock().insert(vm);
        }
        if !is_expected {
            self.changes.send_replace(());
        }
    }

    /// Drops the known state of a VM. The value: whether its end is expected.
    fn ended(&self, vm: VmUuid, is_removed: bool) -> bool {
        let mut all = self.known.lock();
        let is_expected = match all.remove(&vm) {
            Some(Known::Awaited) => true,
            Some(Known::Running(running)) => running.is_to_stop && Instant::now() < running.until,
            // The VM was stopped for its removal, so the removal is expected too.
            Some(Known::Stopped) => is_removed,
            None => false,
        };
        if is_expected && !is_removed {
            all.insert(vm, Known::Stopped);
        }
        is_expected
    }

    /// Drops all known states for a new connection, because events before it were missed.
    pub fn missed(&self) {
        self.known.lock().clear();
        self.changes.send_replace(());
    }

    /// Streams an item for each change; several changes at once are one item.
    pub fn hints(&self) -> BoxStream<'static, ()> {
        let changes = self.changes.subscribe();
        stream::unfold(changes, |mut changes| async { changes.changed().await.is_ok().then_some(((), changes)) }).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use uuid::Uuid;

    use super::*;
    use crate::hypervisor::drivers::libvirt::client::Domain;
    use crate::vm::{Power, Seeded};

    const TIME: Duration = Duration::from_secs(30);

    fn vm() -> VmUuid {
        VmUuid(Uuid::from_u128(0x3f25_04e0_4f89_41d3_9a0c_0305_e82c_3301))
    }

    fn key() -> MachineKey {
        MachineKey { vm: vm(), cluster: "lab/one".into(), name: "win-1".into() }
    }

    fn event(what: What) -> Event {
        Event { domain: Domain { name: "win-1-3f2504e0".into(), uuid: vm().0 }, what }
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
        for goes_on in [What::Started, What::Rebooted, What::Other] {
            told.take(&event(goes_on));
            assert_eq!(told.of(&key()), Some(present()), "{goes_on:?}");
        }
        assert_eq!(told.of(&MachineKey { cluster: "lab/two".into(), ..key() }), None, "it is another one's");
        tokio::time::advance(TIME).await;
        assert_eq!(told.of(&key()), None);
        for ends in [What::Stopped, What::Removed] {
            told.await_answer(vm());
            told.runs(&key(), present(), TIME);
            told.take(&event(ends));
            assert_eq!(told.of(&key()), None, "{ends:?}");
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
    async fn what_a_pass_does_not_expect_is_worth_a_look() {
        use What::*;
        type Act = fn(&Told);
        type Case = (&'static str, Act, &'static [(What, bool)]);
        let awaited: Act = |told| told.await_answer(vm());
        let runs: Act = |told| {
            told.await_answer(vm());
            told.runs(&key(), present(), TIME);
        };
        let shuts_down: Act = |told| {
            told.await_answer(vm());
            told.shuts_down(&key(), present(), TIME);
        };
        let overdue: Act = |told| {
            told.await_answer(vm());
            told.shuts_down(&key(), present(), Duration::ZERO);
        };
        let unknown: Act = |_| ();
        // Each case: the known state, then the events in order, each with whether it is a hint.
        let cases: [Case; 8] = [
            ("a start that this process asks for", awaited, &[(Started, false)]),
            ("and one whose answer was faster", runs, &[(Started, false)]),
            ("a removal by this process", awaited, &[(Stopped, false), (Removed, false), (Removed, true)]),
            ("a guest that shuts down as it was asked to", shuts_down, &[(Stopped, false), (Removed, false)]),
            ("one that does so late", overdue, &[(Stopped, true)]),
            ("a VM that has just been started", runs, &[(Stopped, true), (Removed, true)]),
            ("one that nobody waits for", unknown, &[(Stopped, true), (Started, true), (Removed, true), (Other, false)]),
            ("a restart, whatever is known", runs, &[(Rebooted, true), (Rebooted, true)]),
        ];
        for (name, act, told_of) in cases {
            let told = Told::default();
            let mut hints = told.hints();
            act(&told);
            for (what, is_hint) in told_of {
                told.take(&event(*what));
                assert_eq!(hints.next().now_or_never().is_some(), *is_hint, "{name}: {what:?}");
            }
        }
    }

    #[tokio::test]
    async fn many_at_once_are_one_hint_and_other_vms_are_none() {
        let told = Told::default();
        let mut hints = told.hints();
        told.take(&Event { domain: Domain { name: "postgres".into(), uuid: Uuid::nil() }, what: What::Stopped });
        assert_eq!(hints.next().now_or_never(), None, "it is none of ours");
        for what in [What::Stopped, What::Removed, What::Rebooted] {
            told.take(&event(what));
        }
        assert_eq!((hints.next().now_or_never(), hints.next().now_or_never()), (Some(Some(())), None));
        assert_eq!((told.restarted(), told.restarted()), ([vm()].into(), HashSet::new()), "it is told once");
    }
}
