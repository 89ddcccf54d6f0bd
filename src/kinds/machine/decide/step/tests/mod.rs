//! A model of one machine's world: every decision is repeated while random faults happen.

use crate::kinds::machine::decide::vm;
use crate::kinds::machine::report;
use jiff::Timestamp;
use serde_json::json;

use crate::api::capi::{Cluster, Machine};
use crate::api::condition::{self, Reason};
use crate::api::name::VmUuid;
use crate::domain::identity::HYPERVISOR_ANNOTATION;
use crate::kinds::machine::decide::step::*;
use crate::vm::{GuestReport, Observed, Power, Present, Seeded};

mod histories;
mod places;
mod stops;
mod troubles;

const START: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

fn machine_of_core(secret: bool, node: Option<&str>) -> Machine {
    let bootstrap = if secret { json!({"dataSecretName": "win-1"}) } else { json!({}) };
    let status = node.map(|n| json!({"nodeRef": {"name": n}})).unwrap_or(json!({}));
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "version": "v1.36.3", "bootstrap": bootstrap, "infrastructureRef": {"apiGroup": "g", "kind": "WindowsMachine", "name": "win-1"}},
        "status": status,
    }))
    .unwrap()
}

fn cluster(paused: bool) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": {"paused": paused},
        "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}},
    }))
    .unwrap()
}

fn windows_machine() -> WindowsMachine {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {
            "name": "win-1", "namespace": "lab", "uid": "u", "generation": 1, "creationTimestamp": at(0).to_string(),
            "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "win-1", "uid": "m", "controller": true}],
        },
        "spec": {"image": "windows-server-2022"},
    }))
    .unwrap()
}

/// One machine, its VM, and everything that it waits for.
struct World {
    object: Option<WindowsMachine>,
    owner: Machine,
    cluster: Cluster,
    vm: Option<Present>,
    hypervisors: Vec<String>,
    /// The hypervisors that the WindowsCluster allows; empty: all.
    usable: Vec<String>,
    reach: Reach,
    now: i64,
    made: u32,
    detached: u32,
    /// When the last pass requested the next one.
    look: Option<Duration>,
}

impl World {
    fn new() -> Self {
        Self {
            object: Some(windows_machine()),
            owner: machine_of_core(true, None),
            cluster: cluster(false),
            vm: None,
            hypervisors: vec!["lab".into()],
            usable: vec![],
            reach: Reach::Reachable,
            now: 10,
            made: 0,
            detached: 0,
            look: None,
        }
    }

    /// One pass: decides and carries out. Returns the decision, for the tables.
    fn pass(&mut self) -> Option<(MachineStep, Vec<Desired>)> {
        let object = self.object.clone()?;
        let owner = Owner::of(object.metadata.owner_references.as_ref(), Some(&self.owner));
        let mut cluster = TargetCluster::of_cluster(&self.cluster, None);
        cluster.hypervisors = self.usable.clone();
        let known = self.reach.clone();
        let reach = move |_: &str| known.clone();
        let s =
            ObservedMachine { object: &object, owner: &owner, cluster: Some(&cluster), hypervisors: &self.hypervisors, reach: &reach, twin: None };
        let decision = decide(&s, at(self.now));
        match &decision.step {
            MachineStep::Ignore => {}
            MachineStep::Wait => self.report(&decision.conditions, None),
            MachineStep::Adopt { hypervisor } => {
                let meta = &mut self.object.as_mut()?.metadata;
                meta.finalizers.get_or_insert_default().push(FINALIZER.into());
                meta.annotations.get_or_insert_default().insert(HYPERVISOR_ANNOTATION.into(), hypervisor.clone());
            }
            MachineStep::Release => self.release(),
            MachineStep::Run(target) | MachineStep::Remove(target) => {
                assert!(
                    object.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER),
                    "a hypervisor was asked before the finalizer was stored"
                );
                let observed = self.vm.clone().map_or(Observed::Absent, Observed::Present);
                let next = vm::decide(
                    &vm::ObservedVm { object: &object, owner: &owner, target, observed: &observed, stop: Duration::from_secs(120) },
                    at(self.now),
                );
                self.look = next.requeue_after;
                self.act(&next.step, &next.conditions);
            }
        }
        Some((decision.step, decision.conditions))
    }

    fn act(&mut self, step: &vm::VmStep, said: &[Desired]) {
        match step {
            vm::VmStep::Create => {
                assert!(self.vm.is_none(), "a second VM");
                self.made += 1;
                self.vm =
                    Some(Present { power: Power::Off, seeded: Seeded::No, vm: true, addresses: vec![], report: None, trouble: None, warning: None });
            }
            vm::VmStep::Advance => {
                let vm = self.vm.as_mut().unwrap();
                if vm.seeded == Seeded::Yes { vm.power = Power::On } else { vm.seeded = Seeded::Yes }
            }
            vm::VmStep::Detach(_) => {
                self.vm.as_mut().unwrap().seeded = Seeded::No;
                self.detached += 1;
            }
            vm::VmStep::SetProviderId(id) => self.object.as_mut().unwrap().spec.provider_id = Some(id.to_string()),
            vm::VmStep::Retire(_) => self.vm = self.vm.take().filter(|v| v.power == Power::On).map(|v| Present { power: Power::Off, ..v }),
            vm::VmStep::Release => self.release(),
            vm::VmStep::Wait => {}
            vm::VmStep::Report(_) => assert!(self.object.as_ref().unwrap().spec.provider_id.is_some()),
        }
        let present = if let vm::VmStep::Report(present) | vm::VmStep::Detach(present) = step { Some(&**present) } else { None };
        self.report(said, present);
    }

    fn report(&mut self, said: &[Desired], present: Option<&Present>) {
        let now = at(self.now);
        if let Some(object) = &mut self.object {
            let before = is_provisioned(object);
            object.status = Some(report::status(object, said, present, None, now));
            assert!(is_provisioned(object) || !before, "provisioned was taken back");
        }
    }

    fn release(&mut self) {
        let object = self.object.as_ref().unwrap();
        assert!(object.metadata.deletion_timestamp.is_some() && self.vm.is_none(), "released while a VM is left");
        self.object = None;
    }

    fn settle(&mut self) {
        for _ in 0..30 {
            self.now += 5;
            self.pass();
        }
    }

    fn reason(&self, type_: &str) -> Reason {
        let object = self.object.as_ref().unwrap();
        condition::find(&object.status.as_ref().unwrap().conditions, type_).and_then(|c| Reason::from_name(&c.reason)).unwrap()
    }

    /// Deletes the object as the API server does: without finalizers, it disappears at once.
    fn delete(&mut self) {
        if self.object.as_ref().is_some_and(|o| o.metadata.finalizers.is_none()) {
            self.object = None;
        }
        if let Some(object) = &mut self.object {
            object.metadata.deletion_timestamp.get_or_insert_with(|| serde_json::from_value(json!(at(self.now).to_string())).unwrap());
        }
    }
}

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
fn a_failure_domain_decides_the_hypervisor_once() {
    let mut w = World::new();
    w.hypervisors.push("other".into());
    w.owner.spec.failure_domain = Some("other".into());
    w.settle();
    w.owner.spec.failure_domain = Some("lab".into());
    w.settle();
    let object = w.object.unwrap();
    assert_eq!(object.status.unwrap().failure_domain.as_deref(), Some("other"));
    assert!(object.spec.provider_id.unwrap().starts_with("windows://other/"));
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

fn said(item: &str, state: &str, code: u32, message: &str) -> Option<GuestReport> {
    Some(GuestReport { sequence: 9, boot: 1, item: item.into(), state: state.into(), code, message: message.into() })
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
