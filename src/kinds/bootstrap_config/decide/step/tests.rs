//! The life of a bootstrap token and its Secret, as tables and as a model with random crashes.

use crate::kinds::bootstrap_config::report;
use proptest::prelude::*;
use serde_json::json;

use crate::api::capi::{Cluster, Machine};
use crate::api::cluster::WindowsCluster;
use crate::api::condition::{self, ConditionType, Reason};
use crate::kinds::bootstrap_config::decide::step::*;

const START: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

fn core_machine(secret: Option<&str>, node: bool) -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "win-1", "namespace": "lab", "uid": "m"},
        "spec": {"clusterName": "c1", "version": "v1.36.3", "bootstrap": secret.map_or(json!({}), |s| json!({"dataSecretName": s})),
                 "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "WindowsMachine", "name": "win-1"}},
        "status": if node { json!({"nodeRef": {"name": "win-1"}}) } else { json!({}) },
    }))
    .unwrap()
}

fn cluster(ready: bool, endpoint: bool) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"},
        "spec": if endpoint { json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}) } else { json!({}) },
        "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": ready}},
    }))
    .unwrap()
}

/// A WindowsCluster that brings the network, with what it knows about the network.
fn bringing(components: &serde_json::Value) -> WindowsCluster {
    serde_json::from_value(json!({"metadata": {"name": "c1"}, "spec": {"components": {"mode": "Auto"}}, "status": {"components": components}}))
        .unwrap()
}

fn windows_machine(adopted: bool) -> WindowsMachine {
    let annotations = if adopted { json!({crate::domain::identity::HYPERVISOR_ANNOTATION: "lab"}) } else { json!({}) };
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "w", "annotations": annotations}, "spec": {"image": "i"},
    }))
    .unwrap()
}

fn config() -> WindowsBootstrapConfig {
    serde_json::from_value(json!({
        "apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-1", "namespace": "lab", "uid": "u", "generation": 1, "creationTimestamp": at(0).to_string(),
            "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "win-1", "uid": "m", "controller": true}]},
        "spec": {"join": {"tokenTTLSeconds": 600, "tokenMaxAgeSeconds": 3600}},
    }))
    .unwrap()
}

/// A configuration and the objects that were created for it.
struct World {
    object: Option<WindowsBootstrapConfig>,
    owner: Machine,
    cluster: Cluster,
    infrastructure: Option<WindowsCluster>,
    machine: WindowsMachine,
    /// When the token in the workload cluster expires.
    token: Option<Timestamp>,
    secret: bool,
    issued: Option<Timestamp>,
    now: i64,
}

impl World {
    fn new() -> Self {
        Self {
            object: Some(config()),
            owner: core_machine(None, false),
            cluster: cluster(true, true),
            infrastructure: None,
            machine: windows_machine(true),
            token: None,
            secret: false,
            issued: None,
            now: 10,
        }
    }

    fn decide(&self) -> Option<Decision<BootstrapStep>> {
        let object = self.object.as_ref()?;
        let owner = Owner::of(object.metadata.owner_references.as_ref(), Some(&self.owner));
        let cluster = TargetCluster::of_cluster(&self.cluster, self.infrastructure.as_ref());
        let infrastructure = Infrastructure::Ours(&self.machine);
        Some(decide(
            &ObservedConfig { object, owner: &owner, cluster: Some(&cluster), infrastructure, certificate_issued: self.issued },
            at(self.now),
        ))
    }

    /// One pass. `crash` is the number of effects after which the process dies.
    fn pass(&mut self, crash: usize) -> Option<BootstrapStep> {
        let decision = self.decide()?;
        let now = at(self.now);
        let mut said = decision.conditions.clone();
        let (mut secret, mut token) = (None, None);
        match &decision.step {
            BootstrapStep::Ignore | BootstrapStep::Wait => {}
            BootstrapStep::Adopt => {
                self.object.as_mut()?.metadata.finalizers = Some(vec![FINALIZER.into()]);
            }
            BootstrapStep::Restore { secret: name } => secret = Some(name.clone()),
            BootstrapStep::MakeData { .. } => {
                assert!(self.object.as_ref()?.metadata.finalizers.is_some(), "a token before the finalizer");
                let expires = *self.token.get_or_insert(now.saturating_add(SignedDuration::from_secs(600)).unwrap());
                if crash == 1 {
                    return Some(decision.step);
                }
                self.secret = true;
                if crash == 2 {
                    return Some(decision.step);
                }
                said.push(Desired::yes(ConditionType::JoinCredentialValid, Reason::TokenValid));
                secret = Some("win-1".to_owned());
                token = Some(report::Token { id: token_id(self.object.as_ref()?), created: now, expires, cluster_uid: None });
            }
            BootstrapStep::ExtendToken { expires } => {
                self.token = Some(*expires);
                let created = self.object.as_ref()?.status.as_ref()?.token_created_at.as_ref()?.0;
                token = Some(report::Token { id: token_id(self.object.as_ref()?), created, expires: *expires, cluster_uid: None });
            }
            BootstrapStep::DeleteToken { expired } => {
                self.token = None;
                let why = if *expired { Reason::TokenExpired } else { Reason::TokenUsed };
                said.push(Desired::yes(ConditionType::JoinCredentialValid, why));
            }
            BootstrapStep::CleanUp => {
                self.token = None;
                self.object = None;
                return Some(decision.step);
            }
        }
        if crash > 0 {
            return Some(decision.step);
        }
        let object = self.object.as_mut()?;
        object.status = Some(report::status(object, &said, secret.as_deref(), token, now));
        if let Some(name) = data_secret(object) {
            self.owner.spec.bootstrap.data_secret_name = Some(name.to_owned());
        }
        Some(decision.step)
    }

    fn delete(&mut self) {
        match self.object.as_mut() {
            Some(object) if object.metadata.finalizers.is_some() => {
                object.metadata.deletion_timestamp = object.metadata.creation_timestamp.clone();
            }
            _ => self.object = None,
        }
    }

    fn token_reason(&self) -> Reason {
        let status = self.object.as_ref().unwrap().status.clone().unwrap_or_default();
        condition::find(&status.conditions, ConditionType::JoinCredentialValid).and_then(|c| Reason::from_name(&c.reason)).unwrap()
    }
}

#[test]
fn from_nothing_to_a_used_token() {
    let mut w = World::new();
    assert_eq!(w.pass(0), Some(BootstrapStep::Adopt));
    assert!(matches!(w.pass(0), Some(BootstrapStep::MakeData { .. })));
    assert!(w.secret && w.token.is_some());
    assert_eq!(w.pass(0), Some(BootstrapStep::Wait));
    w.issued = Some(at(w.now));
    let wait = w.decide().unwrap();
    assert_eq!((wait.step, wait.requeue_after), (BootstrapStep::Wait, Some(Duration::from_secs(10))), "the kubelet still has to fetch it");
    w.now += 10;
    assert_eq!(w.pass(0), Some(BootstrapStep::DeleteToken { expired: false }));
    assert_eq!((w.token, w.pass(0)), (None, Some(BootstrapStep::Wait)));
}

#[test]
fn the_token_is_kept_until_the_node_joins_but_not_for_ever() {
    let mut w = World::new();
    w.pass(0);
    w.pass(0);
    let mut extended = 0;
    while w.token_reason() == Reason::TokenValid {
        let left = w.token.unwrap().duration_since(at(w.now)).as_secs();
        assert!(left > 0, "the token ended before the node joined");
        let look = w.decide().unwrap().requeue_after.map_or(1, |d| i64::try_from(d.as_secs()).unwrap());
        w.now += look.max(1);
        if matches!(w.pass(0), Some(BootstrapStep::ExtendToken { .. })) {
            extended += 1;
        }
        assert!(w.now < 10_000, "never withdrawn");
    }
    assert_eq!((w.token_reason(), w.token), (Reason::TokenExpired, None));
    assert!((5..=30).contains(&extended), "{extended}");
    assert!((3_600..3_700).contains(&w.now), "{}", w.now);
}

#[test]
fn waits_are_named_when_they_last() {
    type Change = fn(&mut World);
    let table: &[(&str, Change, Reason)] = &[
        ("control plane", |w| w.cluster = cluster(false, true), Reason::WaitingForControlPlaneInitialized),
        ("endpoint", |w| w.cluster = cluster(true, false), Reason::WaitingForControlPlaneInitialized),
        ("network", |w| w.infrastructure = Some(bringing(&json!({}))), Reason::WaitingForClusterInfrastructureReady),
        ("hypervisor", |w| w.machine = windows_machine(false), Reason::Provisioning),
    ];
    for (what, change, wanted) in table {
        let mut w = World::new();
        change(&mut w);
        w.now = 1;
        let early = w.decide().unwrap();
        assert!(early.conditions.is_empty() && early.requeue_after.is_some(), "{what}: told at once");
        w.now = 60;
        assert_eq!(w.decide().unwrap().conditions[0].reason, *wanted, "{what}");
        assert_eq!(w.token, None, "{what}");
    }
}

#[test]
fn the_data_is_made_once_the_network_was_read() {
    for role in ["Run", "Refuse"] {
        let mut w = World::new();
        w.infrastructure = Some(bringing(&json!({})));
        assert_eq!(w.pass(0), Some(BootstrapStep::Wait));
        w.infrastructure = Some(bringing(&json!({"network": {"name": "n", "role": role}})));
        assert_eq!(w.pass(0), Some(BootstrapStep::Adopt), "{role}");
    }
}

/// Reported before anything is created and without a wait, whatever the Cluster does. After a correction, the pass continues at once.
#[test]
fn versions_that_cannot_work_are_said_at_once() {
    let mut w = World::new();
    w.cluster = cluster(false, false);
    w.now = 1;
    w.owner.spec.version = Some("v1.30.2".into());
    let told = w.decide().unwrap();
    let said = told.conditions.first().unwrap();
    assert_eq!((told.step, said.type_, said.reason), (BootstrapStep::Wait, ConditionType::Ready, Reason::Incompatible));
    assert!(said.message.contains("v1.30.2") && said.message.contains("Nearest set that works: Kubernetes v1.36.3"), "{}", said.message);
    w.cluster = cluster(true, true);
    assert_eq!(w.decide().unwrap().step, BootstrapStep::Wait);
    w.owner.spec.version = Some("v1.36.3".into());
    assert_eq!(w.decide().unwrap().step, BootstrapStep::Adopt);
}

#[test]
fn after_a_move_nothing_is_made_again() {
    let mut w = World::new();
    w.owner = core_machine(Some("win-1"), true);
    assert_eq!(w.pass(0), Some(BootstrapStep::Restore { secret: "win-1".into() }));
    // What was created in the earlier life is removed with the object.
    assert_eq!((w.pass(0), w.token), (Some(BootstrapStep::Adopt), None));
    assert_eq!((w.pass(0), w.token), (Some(BootstrapStep::Wait), None));
    w.delete();
    assert_eq!(w.pass(0), Some(BootstrapStep::CleanUp));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The process crashes anywhere, the object is deleted at any time: in the end, either Secret and live token exist, or neither object nor token.
    #[test]
    fn any_crash_ends_well(crashes in prop::collection::vec(0usize..3, 0..12), deleted in any::<bool>(), when in 0usize..12) {
        let mut w = World::new();
        for (step, crash) in crashes.into_iter().enumerate() {
            if deleted && step == when {
                w.delete();
            }
            w.now += 7;
            w.pass(crash);
        }
        if deleted {
            w.delete();
        }
        for _ in 0..6 {
            w.pass(0);
        }
        if deleted {
            prop_assert!(w.object.is_none() && w.token.is_none());
        } else {
            prop_assert!(w.secret && w.token.is_some());
            prop_assert_eq!(w.token_reason(), Reason::TokenValid);
        }
    }
}

#[test]
fn a_node_is_deleted_only_if_it_is_one_of_ours() {
    let id = "windows://lab/3f2504e0-4f89-51d3-9a0c-0305e82c3301";
    let infrastructure =
        crate::api::capi::Reference { api_group: "infrastructure.cluster.x-k8s.io".into(), kind: "WindowsMachine".into(), name: "win-1".into() };
    let request = |id: &str, node: Option<&str>| NodeRequest {
        provider_id: Some(id.into()),
        node: node.map(Into::into),
        infrastructure: infrastructure.clone(),
        ..NodeRequest::default()
    };
    let deleted = |request: &NodeRequest| node_to_delete(request).map(|node| (node.name.to_string(), node.provider_id.to_string()));
    assert_eq!(deleted(&request(id, Some("win-1"))), Some(("win-1".to_owned(), id.to_owned())));
    assert_eq!(deleted(&request(id, Some("win-2"))), None, "core found a Node that says it is this machine");
    assert_eq!(deleted(&request("vsphere://x", Some("win-1"))), None);
    assert_eq!(deleted(&request(id, None)), Some(("win-1".to_owned(), id.to_owned())), "core has not found it yet");
}

#[test]
fn a_finalizer_that_was_taken_away_is_put_back() {
    let mut w = World::new();
    for _ in 0..5 {
        w.pass(0);
    }
    let object = w.object.as_mut().unwrap();
    assert!(data_secret(object).is_some());
    object.metadata.finalizers = None;
    assert_eq!(w.decide().unwrap().step, BootstrapStep::Adopt);
    w.pass(0);
    assert!(w.object.as_ref().unwrap().metadata.finalizers.iter().flatten().any(|f| f == FINALIZER));
}
