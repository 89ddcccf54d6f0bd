//! How a VM is stopped, and what is said of one that does not run although it is on.

use std::time::Duration;

use super::*;
use crate::vm::StopMode;

/// What is decided for a machine whose VM ran, is on, and is being removed `seconds` after the first pass that said so.
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
