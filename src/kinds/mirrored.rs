//! The conditions that Cluster API copies together with their messages: to a Machine, and to a Cluster. While such a condition is True it has no
//! message, because `Available` of the Cluster would show the message as a problem. Each state here has something to report, in another condition.
//!
//! A WindowsNodePool is not among these kinds: Cluster API computes the state of its MachinePool from numbers.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::bootstrap_config::decide::outcome;
use super::control_plane::decide::{Answer, ObservedControlPlane, Probe, WindowsSide};
use super::machine::decide::step::{Goal, Reach, Target, vm_spec};
use super::machine::decide::vm::ObservedVm;
use super::windows_cluster::decide::step::ObservedWindowsCluster;
use super::{bootstrap_config, control_plane, machine, windows_cluster};
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::Cluster;
use crate::api::cluster::{ControlPlaneEndpoint, WindowsCluster, WindowsClusterStatus};
use crate::api::condition::{self, ConditionType};
use crate::api::control_plane::{self as control_plane_api, ExternalControlPlane};
use crate::api::machine::WindowsMachine;
use crate::api::name::VmUuid;
use crate::domain::identity::key;
use crate::domain::owner::{NodeRequest, Owner, TargetCluster};
use crate::testing::read;
use crate::vm::{Observed, Power, Present, Seeded};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const TROUBLE: &str = "something that a person should know";

fn object(group: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}.cluster.x-k8s.io/v1alpha1"), "kind": kind, "metadata": {"name": "one", "namespace": "lab", "uid": "u"},
        "spec": spec})
}

fn cluster() -> Cluster {
    read(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}}))
}

/// A VM with a warning, before and after its Node has joined.
fn of_a_machine() -> Vec<Vec<Condition>> {
    let spec = json!({"image": "windows-server-2022", "providerID": format!("windows://lab/{}", VmUuid::of("u"))});
    let object: WindowsMachine = read(object("infrastructure", "WindowsMachine", spec));
    let present =
        Present { power: Power::On, seeded: Seeded::Yes, vm: true, addresses: vec![], report: None, trouble: None, warning: Some(TROUBLE.into()) };
    let goal = Goal::Run { spec: Box::new(vm_spec(&object).unwrap()), secret: "one".into() };
    let (target, observed) = (Target { hypervisor: "lab".into(), key: key(&object), goal }, Observed::Present(present.clone()));
    let states = [None, Some("one".to_owned())].map(|node| {
        let owner = Owner::from(NodeRequest { node, ..NodeRequest::default() });
        let observed = ObservedVm { object: &object, owner: &owner, target: &target, observed: &observed, stop: Duration::ZERO };
        let decision = machine::decide::vm::decide(&observed, NOW);
        machine::report::status(&object, &decision.conditions, Some(&present), None, NOW).conditions
    });
    states.into()
}

/// Data with a warning of the rules, and data that the Machine had already.
fn of_a_configuration() -> Vec<Vec<Condition>> {
    let object: WindowsBootstrapConfig = read(object("bootstrap", "WindowsBootstrapConfig", json!({})));
    let states = [outcome::made(TROUBLE.into()), outcome::restored()]
        .map(|decision| bootstrap_config::report::status(&object, &decision.conditions, Some("one"), None, NOW).conditions);
    states.into()
}

/// A cluster none of whose VMs can be reached.
fn of_a_windows_cluster() -> Vec<Vec<Condition>> {
    let object: WindowsCluster = read(object("infrastructure", "WindowsCluster", json!({})));
    let target = TargetCluster::of_cluster(&cluster(), None);
    let reach = |_: &str| Reach::Unreachable(TROUBLE.into());
    let observed = ObservedWindowsCluster { object: &object, cluster: Some(&target), machines: 1, hypervisors: vec!["lab".into()], reach: &reach };
    let decision = windows_cluster::decide::step::decide(&observed);
    vec![windows_cluster::report::status(&object, WindowsClusterStatus::default(), &decision.conditions, NOW).conditions]
}

/// An API server of another version than the desired one.
fn of_a_control_plane() -> Vec<Vec<Condition>> {
    let mut object: ExternalControlPlane = read(object("controlplane", "ExternalControlPlane", json!({"version": "v1.36.3"})));
    object.metadata.finalizers = Some(vec![control_plane_api::FINALIZER.into()]);
    let server = ControlPlaneEndpoint { host: "10.0.0.1".into(), port: 6443 };
    let answer = Answer { version: "v1.35.6".into(), server, digest: "d".into(), uid: None, missing: None, secrets_current: true };
    let decision = control_plane::decide::decide(&ObservedControlPlane {
        object: &object,
        cluster: Some(&cluster()),
        owned: true,
        machines: 1,
        windows_side: WindowsSide::Unseen,
        probe: Probe::Answered(answer.clone()),
    });
    vec![control_plane::report::status(&object, &decision.conditions, Some(&answer), NOW).conditions]
}

#[test]
fn a_true_condition_that_cluster_api_copies_has_no_message() {
    const READY: &[ConditionType] = &[ConditionType::Ready];
    for (kind, copied, states) in [
        ("WindowsMachine", READY, of_a_machine()),
        ("WindowsBootstrapConfig", READY, of_a_configuration()),
        ("WindowsCluster", READY, of_a_windows_cluster()),
        ("ExternalControlPlane", &[ConditionType::Ready, ConditionType::Available], of_a_control_plane()),
    ] {
        assert!(states.iter().flatten().any(|condition| !condition.message.is_empty()), "{kind} has nothing to report: {states:?}");
        for (state, type_) in states.iter().flat_map(|state| copied.iter().map(move |type_| (state, *type_))) {
            let found = condition::find(state, type_).unwrap_or_else(|| panic!("{kind} has no condition {type_}: {state:?}"));
            assert_eq!((found.status.as_str(), found.message.as_str()), ("True", ""), "{kind}: Cluster API copies {type_}");
        }
    }
}
