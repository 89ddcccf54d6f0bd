//! One machine with its VM, and everything that it waits for.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::api::capi::{Cluster, Machine};
use crate::api::condition::{self, Desired, Reason};
use crate::api::machine::{FINALIZER, WindowsMachine};
use crate::domain::identity::{HYPERVISOR_ANNOTATION, is_provisioned};
use crate::domain::owner::{Owner, TargetCluster};
use crate::kinds::machine::decide::step::{MachineStep, ObservedMachine, Reach, decide};
use crate::kinds::machine::decide::vm;
use crate::kinds::machine::report;
use crate::vm::{GuestReport, Observed, Power, Present, Seeded};

const START: i64 = 1_800_000_000;

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

pub fn machine_of_core(secret: bool, node: Option<&str>) -> Machine {
    let bootstrap = if secret { json!({"dataSecretName": "win-1"}) } else { json!({}) };
    let status = node.map(|n| json!({"nodeRef": {"name": n}})).unwrap_or(json!({}));
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "version": "v1.36.3", "bootstrap": bootstrap, "infrastructureRef": {"apiGroup": "g", "kind": "WindowsMachine", "name": "win-1"}},
        "status": status,
    }))
    .unwrap()
}

pub fn cluster(paused: bool) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": {"paused": paused},
        "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}},
    }))
    .unwrap()
}

pub fn windows_machine() -> WindowsMachine {
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
pub struct World {
    pub object: Option<WindowsMachine>,
    pub owner: Machine,
    pub cluster: Cluster,
    pub vm: Option<Present>,
    pub hypervisors: Vec<String>,
    /// The hypervisors that the WindowsCluster allows; empty: all.
    pub usable: Vec<String>,
    pub reach: Reach,
    pub now: i64,
    pub made: u32,
    pub detached: u32,
    /// When the last pass requested the next one.
    pub look: Option<Duration>,
}

impl World {
    pub fn new() -> Self {
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
    pub fn pass(&mut self) -> Option<(MachineStep, Vec<Desired>)> {
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

    pub fn report(&mut self, said: &[Desired], present: Option<&Present>) {
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

    pub fn settle(&mut self) {
        for _ in 0..30 {
            self.now += 5;
            self.pass();
        }
    }

    pub fn reason(&self, type_: &str) -> Reason {
        let object = self.object.as_ref().unwrap();
        condition::find(&object.status.as_ref().unwrap().conditions, type_).and_then(|c| Reason::from_name(&c.reason)).unwrap()
    }

    /// Deletes the object as the API server does: without finalizers, it disappears at once.
    pub fn delete(&mut self) {
        if self.object.as_ref().is_some_and(|o| o.metadata.finalizers.is_none()) {
            self.object = None;
        }
        if let Some(object) = &mut self.object {
            object.metadata.deletion_timestamp.get_or_insert_with(|| serde_json::from_value(json!(at(self.now).to_string())).unwrap());
        }
    }
}

/// A report of the guest.
pub fn said(item: &str, state: &str, code: u32, message: &str) -> Option<GuestReport> {
    Some(GuestReport { sequence: 9, boot: 1, item: item.into(), state: state.into(), code, message: message.into() })
}
