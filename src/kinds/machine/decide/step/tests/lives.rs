//! A machine from its creation to its removal, and the conditions that users see during that time.

use std::time::Duration;

use serde_json::json;

use super::world::{World, at, machine_of_core, said, windows_machine};
use crate::api::condition::{self, Reason};
use crate::api::name::VmUuid;
use crate::domain::identity::{is_provisioned, key};
use crate::domain::owner::Owner;
use crate::kinds::machine::decide::step::{Goal, MachineStep, Reach, Target, vm_spec};
use crate::kinds::machine::decide::vm;
use crate::vm::{GuestReport, Observed, Seeded};

#[test]
fn a_machine_lives_and_goes() {
    let mut w = World::new();
    w.settle();
    let object = w.object.clone().unwrap();
    assert!(is_provisioned(&object));
    assert_eq!(object.spec.provider_id.as_deref().unwrap(), format!("windows://lab/{}", VmUuid::of("u")));
    assert_eq!((w.reason("Ready"), w.reason("NodeJoined")), (Reason::Provisioned, Reason::Joining));
    w.owner = machine_of_core(true, Some("win-1"));
    w.settle();
    assert_eq!(w.reason("NodeJoined"), Reason::Joined);
    assert_eq!(w.detached, 0, "the guest may still need its seed");
    let finished = GuestReport { sequence: 9, boot: 2, item: "plan".into(), state: "finished".into(), code: 0, message: String::new() };
    w.vm.as_mut().unwrap().report = Some(finished);
    w.settle();
    assert_eq!((w.detached, w.vm.as_ref().unwrap().seeded), (1, Seeded::No));
    assert_eq!((w.reason("Ready"), w.reason("VirtualMachineReady")), (Reason::Provisioned, Reason::Provisioned));
    // A move to another cluster drops the status, and the seed is detached by then.
    w.object.as_mut().unwrap().status = None;
    w.settle();
    assert_eq!((w.reason("Ready"), w.reason("NodeJoined"), w.detached), (Reason::Provisioned, Reason::Joined, 1));
    w.delete();
    w.settle();
    assert!(w.object.is_none() && w.vm.is_none());
    assert_eq!(w.made, 1);
}

#[test]
fn nothing_is_written_before_the_machine_owns_it() {
    let mut w = World::new();
    w.object.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(w.pass(), Some((MachineStep::Ignore, vec![])));
    w.object.as_mut().unwrap().metadata.deletion_timestamp = windows_machine().metadata.creation_timestamp;
    assert_eq!(w.pass(), Some((MachineStep::Ignore, vec![])));
}

#[test]
fn what_people_are_told() {
    type Change = fn(&mut World);
    let table: &[(&str, Change, Reason)] = &[
        ("no bootstrap data", |w| w.owner = machine_of_core(false, None), Reason::WaitingForBootstrapData),
        (
            "no infrastructure yet",
            |w| w.cluster.status = serde_json::from_value(json!({"initialization": {"controlPlaneInitialized": true}})).unwrap(),
            Reason::WaitingForClusterInfrastructureReady,
        ),
        ("no hypervisor", |w| w.hypervisors.clear(), Reason::HypervisorMissing),
        ("none that the cluster may use", |w| w.usable.push("other".into()), Reason::HypervisorMissing),
        ("two hypervisors, none named", |w| w.hypervisors.push("other".into()), Reason::HypervisorMissing),
        ("unknown failure domain", |w| w.owner.spec.failure_domain = Some("mars".into()), Reason::HypervisorMissing),
        ("unreachable", |w| w.reach = Reach::Unreachable("refused".into()), Reason::HypervisorUnreachable),
        (
            "name too long",
            |w| {
                let object = w.object.as_mut().unwrap();
                object.metadata.name = Some("a-name-that-is-too-long".into());
                object.spec.host_name = crate::api::machine::HostNamePolicy::ObjectName;
            },
            Reason::HostNameTooLong,
        ),
        (
            "control plane",
            |w| {
                w.owner.metadata.labels.get_or_insert_default().insert(crate::api::capi::CONTROL_PLANE_LABEL.into(), String::new());
            },
            Reason::ControlPlaneMachineRefused,
        ),
        ("memory", |w| w.object.as_mut().unwrap().spec.memory = "much".into(), Reason::InvalidSpec),
    ];
    for (what, change, wanted) in table {
        let mut w = World::new();
        change(&mut w);
        w.settle();
        assert_eq!(w.reason("Ready"), *wanted, "{what}");
        let status = w.object.as_ref().unwrap().status.clone().unwrap();
        assert!(!condition::find(&status.conditions, "Ready").unwrap().message.is_empty(), "{what}: no message");
        assert_eq!(w.made, 0, "{what}");
    }
}

#[test]
fn a_vm_that_was_removed_from_outside_is_not_made_again() {
    let mut w = World::new();
    w.settle();
    w.vm = None;
    w.settle();
    assert_eq!((w.made, w.reason("Ready")), (1, Reason::VirtualMachineRemoved));
    w.delete();
    w.settle();
    assert!(w.object.is_none());
}

#[test]
fn a_provider_id_outlives_a_move_to_another_cluster() {
    let mut w = World::new();
    w.settle();
    let object = w.object.as_mut().unwrap();
    (object.metadata.uid, object.status) = (Some("another".into()), None);
    w.settle();
    assert!(is_provisioned(w.object.as_ref().unwrap()));
    assert_eq!((w.made, w.reason("Ready")), (1, Reason::Provisioned));
}

#[test]
fn a_network_cut_does_not_make_a_good_machine_unready() {
    let mut w = World::new();
    w.settle();
    w.reach = Reach::Unreachable("no route".into());
    w.settle();
    assert_eq!((w.reason("Ready"), w.reason("VirtualMachineReady")), (Reason::Provisioned, Reason::HypervisorUnreachable));
}

#[test]
fn a_guest_that_never_joins_is_reported_with_its_last_word() {
    let mut w = World::new();
    w.object.as_mut().unwrap().spec.join_deadline_seconds = 60;
    w.settle();
    w.vm.as_mut().unwrap().report = said("join", "retry", 71, "no route");
    w.settle();
    assert_eq!((w.reason("NodeJoined"), w.reason("Ready")), (Reason::NodeNeverJoined, Reason::Provisioned));
    let status = w.object.as_ref().unwrap().status.clone().unwrap();
    assert!(condition::find(&status.conditions, "NodeJoined").unwrap().message.contains("no route"));
    assert_eq!(status.bootstrap.unwrap().message, "no route");
}

/// A MachineHealthCheck sees conditions of the Machine only, and core copies Ready of the infrastructure machine there.
#[test]
fn a_guest_that_has_given_up_makes_its_machine_unready_until_it_goes_on() {
    let mut w = World::new();
    w.settle();
    w.vm.as_mut().unwrap().report = said("plan", "failed", 21, "containers-feature: the source files could not be found");
    w.settle();
    assert_eq!((w.reason("NodeJoined"), w.reason("Ready")), (Reason::WindowsSetupFailed, Reason::WindowsSetupFailed));
    let status = w.object.as_ref().unwrap().status.clone().unwrap();
    let ready = condition::find(&status.conditions, "Ready").unwrap();
    for part in ["containers-feature", "code 21", "source files could not be found", "Install the feature Containers in the image"] {
        assert!(ready.message.contains(part), "{part}: {}", ready.message);
    }
    let progress = status.bootstrap.unwrap();
    assert_eq!((progress.item.as_str(), progress.state.as_str(), progress.code), ("containers-feature", "failed", 21));
    assert!(condition::is_true(&status.conditions, "VirtualMachineReady") && is_provisioned(w.object.as_ref().unwrap()));
    // The VM is restarted from outside, and the plan continues; then the node joins after all.
    w.vm.as_mut().unwrap().report = said("settle", "started", 0, "");
    w.settle();
    assert_eq!((w.reason("NodeJoined"), w.reason("Ready")), (Reason::Joining, Reason::Provisioned));
    w.vm.as_mut().unwrap().report = said("no-secrets", "failed", 15, "access denied");
    w.owner = machine_of_core(true, Some("win-1"));
    w.settle();
    assert_eq!((w.reason("NodeJoined"), w.reason("Ready")), (Reason::Joined, Reason::Provisioned));
}

/// A machine of a large pool waits for its data, and then its VM is made within a moment: two waits would be two writes.
#[test]
fn a_wait_that_follows_another_is_reported_when_it_lasts() {
    let mut w = World { now: 30, owner: machine_of_core(false, None), ..World::new() };
    w.pass();
    w.pass();
    assert_eq!(w.reason("Ready"), Reason::WaitingForBootstrapData);
    w.owner = machine_of_core(true, None);
    w.now = 39;
    w.pass();
    w.pass();
    assert_eq!((w.made, w.reason("Ready")), (1, Reason::WaitingForBootstrapData));
    w.vm.as_mut().unwrap().seeded = Seeded::No;
    w.now = 40;
    w.pass();
    assert_eq!(w.reason("Ready"), Reason::Provisioning);
}

#[test]
fn a_foreign_vm_is_never_touched_and_does_not_hold_an_object() {
    let w = World::new();
    let object = w.object.clone().unwrap();
    let owner = Owner::of(object.metadata.owner_references.as_ref(), Some(&w.owner));
    let decide = |goal, is_marked| {
        let foreign = Observed::Foreign { what: "VM win-1".into(), is_marked };
        let target = Target { hypervisor: "lab".into(), key: key(&object), goal };
        vm::decide(&vm::ObservedVm { object: &object, owner: &owner, target: &target, observed: &foreign, stop: Duration::ZERO }, at(9))
    };
    let run = decide(Goal::Run { spec: Box::new(vm_spec(&object).unwrap()), secret: "s".into() }, false);
    assert_eq!((run.step, run.conditions[0].reason), (vm::VmStep::Wait, Reason::ForeignVirtualMachine));
    assert_eq!(decide(Goal::Gone, false).step, vm::VmStep::Release);
    let doubt = decide(Goal::Gone, true);
    assert_eq!((doubt.step, doubt.conditions[1].reason), (vm::VmStep::Wait, Reason::ForeignVirtualMachine), "its cluster label was changed");
}
