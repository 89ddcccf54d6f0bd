//! How a VM is stopped, how a VM that is on but does not run is reported, what may be left of a VM, and when its seed is detached.

use std::time::Duration;

use super::world::{World, at, machine_of_core, said};
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::domain::identity::key;
use crate::domain::owner::Owner;
use crate::kinds::machine::decide::step::{Goal, Target};
use crate::kinds::machine::decide::vm;
use crate::vm::{Observed, Power, Present, Seeded, StopMode};

/// The decision for a machine whose VM ran, is on, and is being removed `seconds` after the first pass that reported the removal.
fn stop_after(joined: bool, seconds: i64) -> vm::VmStep {
    let mut w = World::new();
    if joined {
        w.owner = machine_of_core(true, Some("win-1"));
    }
    w.settle();
    w.delete();
    let said = [Desired::no(ConditionType::Ready, Reason::Deleting, "the VM is being stopped and removed")];
    w.report(&said, None);
    let object = w.object.clone().unwrap();
    let owner = Owner::of(object.metadata.owner_references.as_ref(), Some(&w.owner));
    let target = Target { hypervisor: "lab".into(), key: key(&object), goal: Goal::Gone };
    let observed = Observed::Present(w.vm.clone().unwrap());
    let stop = Duration::from_secs(120);
    vm::decide(&vm::ObservedVm { object: &object, owner: &owner, target: &target, observed: &observed, stop }, at(w.now + seconds)).step
}

#[test]
fn a_guest_that_joined_gets_its_time_and_no_more() {
    assert_eq!(stop_after(true, 119), vm::VmStep::Retire(StopMode::Graceful));
    assert_eq!(stop_after(true, 120), vm::VmStep::Retire(StopMode::Hard));
    assert_eq!(stop_after(false, 0), vm::VmStep::Retire(StopMode::Hard), "one that never joined has nothing to lose");
}

#[test]
fn a_vm_that_is_on_and_does_not_run_is_told_in_the_words_of_the_hypervisor() {
    let mut w = World::new();
    w.settle();
    w.vm.as_mut().unwrap().trouble = Some("paused: the disk is full".into());
    w.settle();
    assert_eq!((w.reason("VirtualMachineReady"), w.reason("Ready")), (Reason::VirtualMachineHalted, Reason::VirtualMachineHalted));
    let status = w.object.as_ref().unwrap().status.as_ref().unwrap();
    let ready = condition::find(&status.conditions, ConditionType::Ready).unwrap();
    assert!(ready.message.contains("paused: the disk is full") && ready.message.contains("lab"), "{}", ready.message);
    w.vm.as_mut().unwrap().trouble = None;
    w.settle();
    assert_eq!(w.reason("Ready"), Reason::Provisioned);
}

#[test]
fn what_a_hypervisor_warns_of_is_told_and_changes_nothing_else() {
    let mut w = World::new();
    w.settle();
    w.vm.as_mut().unwrap().warning = Some("the vCenter shows the alarm \"CPU\"".into());
    w.settle();
    let told = |w: &World, type_| {
        let status = w.object.as_ref().unwrap().status.clone().unwrap();
        condition::find(&status.conditions, type_).map(|it| (it.status.clone(), it.message.clone())).unwrap()
    };
    let (status, message) = told(&w, ConditionType::VirtualMachineReady);
    assert!(status == "True" && message.contains("\"CPU\""), "{status} {message}");
    let (status, message) = told(&w, ConditionType::Ready);
    assert!(status == "True" && message.is_empty(), "what Cluster API mirrors stays silent: {message}");
    w.vm.as_mut().unwrap().warning = None;
    w.settle();
    assert_eq!(told(&w, ConditionType::VirtualMachineReady).1, "");
}

#[test]
fn parts_that_are_left_of_a_vm_are_not_made_a_vm_again() {
    let mut w = World::new();
    w.settle();
    let vm = w.vm.as_mut().unwrap();
    (vm.vm, vm.power) = (false, Power::Off);
    w.settle();
    assert_eq!((w.made, w.reason("Ready")), (1, Reason::VirtualMachineRemoved));
}

/// A hypervisor may have started the VM automatically.
#[test]
fn a_vm_that_runs_without_its_seed_gets_it_first() {
    let mut w = World::new();
    w.pass();
    w.vm = Some(Present { power: Power::On, seeded: Seeded::No, vm: true, addresses: vec![], report: None, trouble: None, warning: None });
    w.pass();
    assert_eq!((w.vm.unwrap().seeded, w.object.unwrap().spec.provider_id), (Seeded::Yes, None));
}

#[test]
fn a_seed_stays_until_the_node_has_joined_whatever_the_guest_says() {
    let mut w = World::new();
    w.settle();
    w.vm.as_mut().unwrap().report = said("plan", "finished", 0, "");
    w.settle();
    assert_eq!(w.detached, 0);
    w.owner = machine_of_core(true, Some("win-1"));
    w.settle();
    assert_eq!(w.detached, 1);
}
