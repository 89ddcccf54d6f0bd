//! Random events in random order for one machine, in the world of `world.rs`.

use proptest::prelude::*;

use super::world::{World, cluster, machine_of_core};
use crate::api::condition::Reason;
use crate::domain::identity::is_provisioned;
use crate::kinds::machine::decide::step::Reach;
use crate::vm::Power;

#[derive(Clone, Debug)]
enum Event {
    Pass,
    RemoveVm,
    PowerOff,
    Reach(bool),
    Pause(bool),
    Data(bool),
    Join,
    Delete,
    Time(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => Just(Event::Pass),
        1 => Just(Event::RemoveVm),
        1 => Just(Event::PowerOff),
        1 => any::<bool>().prop_map(Event::Reach),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => any::<bool>().prop_map(Event::Data),
        1 => Just(Event::Join),
        1 => Just(Event::Delete),
        2 => (1..4000i64).prop_map(Event::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For any events in any order: no assertion of the world fails, a pause stops everything, at most one VM is created
    /// after the provider ID was stored, and once everything works again the machine is provisioned, reported as removed or off, or deleted.
    #[test]
    fn any_history_ends_well(events in prop::collection::vec(event(), 0..80)) {
        let mut w = World::new();
        for event in events {
            match event {
                Event::Pass => {
                    let (vm, paused) = (w.vm.clone(), w.cluster.is_paused());
                    w.pass();
                    prop_assert!(!paused || vm == w.vm, "something was done while paused");
                }
                Event::RemoveVm => w.vm = None,
                Event::PowerOff => if let Some(vm) = &mut w.vm { vm.power = Power::Off },
                Event::Reach(yes) => w.reach = if yes { Reach::Reachable } else { Reach::Unreachable("cut".into()) },
                Event::Pause(yes) => w.cluster = cluster(yes),
                Event::Data(yes) => w.owner = machine_of_core(yes, None),
                Event::Join => w.owner = machine_of_core(true, Some("win-1")),
                Event::Delete => w.delete(),
                Event::Time(seconds) => w.now += seconds,
            }
        }
        let deleted = w.object.as_ref().is_none_or(|o| o.metadata.deletion_timestamp.is_some());
        (w.reach, w.cluster, w.owner) = (Reach::Reachable, cluster(false), machine_of_core(true, None));
        w.settle();
        if deleted {
            prop_assert!(w.object.is_none() && w.vm.is_none());
        } else {
            let ready = w.reason("Ready");
            prop_assert!([Reason::Provisioned, Reason::VirtualMachineRemoved, Reason::VirtualMachineOff].contains(&ready), "{}", ready);
            prop_assert!(is_provisioned(w.object.as_ref().unwrap()) || w.vm.is_none());
        }
    }
}
