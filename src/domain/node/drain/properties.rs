//! Properties of a drain for any pods on a Node and any answers of the API server.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::*;
use serde_json::json;

use crate::domain::node::drain::decide::POLL;
use crate::domain::node::drain::{DrainStep, Limits, ObservedNode, PodOnNode, Victim, conditions, decide, elapsed};

/// The properties and the behaviour of a pod.
#[derive(Clone, Debug)]
struct Kind {
    owner: Option<&'static str>,
    mirror: bool,
    phase: &'static str,
    label: Option<&'static str>,
    grace: i64,
    /// The number of evictions that its budget refuses.
    refusals: u32,
    /// The pod does not end when it is deleted.
    hangs: bool,
    finalizer: bool,
}

fn kind() -> impl proptest::strategy::Strategy<Value = Kind> {
    let owner = prop_oneof![Just(None), Just(Some("ReplicaSet")), Just(Some("DaemonSet"))];
    let phase = prop_oneof![4 => Just("Running"), 1 => Just("Pending"), 1 => Just("Succeeded"), 1 => Just("Failed")];
    let label = prop_oneof![6 => Just(None), 1 => Just(Some("skip")), 1 => Just(Some("wait-completed"))];
    (owner, prop::bool::weighted(0.1), phase, label, 0_i64..100, 0_u32..20, prop::bool::weighted(0.3), prop::bool::weighted(0.1)).prop_map(
        |(owner, mirror, phase, label, grace, refusals, hangs, finalizer)| Kind { owner, mirror, phase, label, grace, refusals, hangs, finalizer },
    )
}

struct World {
    now: Timestamp,
    node: Node,
    pods: Vec<(Kind, PodOnNode)>,
    complete_at: Timestamp,
}

impl World {
    fn new(kinds: &[Kind], ready: &str) -> Self {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let node = json!({"metadata": {"name": "win-1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let pods = kinds.iter().enumerate().map(|(n, kind)| (kind.clone(), made(n, kind))).collect();
        Self { now, node: serde_json::from_value(node).unwrap(), pods, complete_at: now + SignedDuration::from_secs(3_000) }
    }

    /// Simulates the API server and the kubelet for that long.
    fn pass(&mut self, time: Duration) {
        self.now += SignedDuration::try_from(time).unwrap();
        let (now, complete) = (self.now, self.now >= self.complete_at);
        self.pods.retain_mut(|(kind, pod)| {
            if complete && kind.label == Some("wait-completed") {
                pod.status.as_mut().unwrap().phase = Some("Succeeded".into());
            }
            kind.hangs || pod.metadata.deletion_timestamp.as_ref().is_none_or(|end| end.0 > now)
        });
    }

    fn evict(&mut self, victim: &Victim, grace: Option<u32>) {
        let now = self.now;
        let (kind, pod) = self.pods.iter_mut().find(|(_, p)| p.metadata.uid.as_deref() == Some(&victim.uid)).expect("it is there");
        assert!(kind.owner != Some("DaemonSet") && !kind.mirror, "{kind:?} was evicted");
        assert!(!matches!(kind.phase, "Succeeded" | "Failed") && kind.label.is_none(), "{kind:?} was evicted");
        assert!(pod.metadata.deletion_timestamp.is_none(), "told twice");
        if kind.refusals > 0 {
            kind.refusals -= 1;
            return;
        }
        let grace = grace.map_or(kind.grace, i64::from);
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        let end = now + SignedDuration::from_secs(grace);
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(end));
    }

    fn force(&mut self, victim: &Victim, hung: Duration) {
        let at = self.pods.iter().position(|(_, p)| p.metadata.uid.as_deref() == Some(&victim.uid)).expect("it is there");
        let (kind, pod) = &mut self.pods[at];
        let end = pod.metadata.deletion_timestamp.clone().expect("force is for what was told to end").0;
        assert!(elapsed(end, self.now) >= hung, "forced within its grace period and the margin");
        assert_ne!(pod.metadata.deletion_grace_period_seconds, Some(0), "forced twice");
        if kind.finalizer {
            pod.metadata.deletion_grace_period_seconds = Some(0);
        } else {
            self.pods.remove(at);
        }
    }
}

fn made(n: usize, kind: &Kind) -> PodOnNode {
    let owners = kind.owner.map(|kind| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]));
    let annotations = kind.mirror.then(|| json!({"kubernetes.io/config.mirror": "h"}));
    let labels = kind.label.map(|value| json!({"cluster.x-k8s.io/drain": value}));
    serde_json::from_value(json!({"metadata": {"namespace": "a", "name": format!("p-{n}"), "uid": format!("u-{n}"),
        "ownerReferences": owners, "annotations": annotations, "labels": labels}, "status": {"phase": kind.phase}}))
    .unwrap()
}

/// Runs a drain to its end; returns how it ended and how long it took.
fn run(world: &mut World, limits: Limits) -> (DrainStep, Duration) {
    let (since, mut endings) = (world.now, HashMap::new());
    for _ in 0..20_000 {
        let pods: Vec<PodOnNode> = world.pods.iter().map(|(_, pod)| pod.clone()).collect();
        let cordoned = world.node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            endings.entry(pod.metadata.uid.clone().unwrap()).or_insert(world.now);
        }
        let situation = ObservedNode { node: &world.node.clone(), pods: Some(&pods), endings: &endings, since, limits, excluded: false };
        let plan = decide(&situation, world.now);
        let words = conditions(&situation, &plan.left, &BTreeMap::new());
        assert!(words[0].message.len() < 4096);
        assert!(!plan.requeue_after.is_zero() && plan.requeue_after <= POLL.1, "{:?}", plan.requeue_after);
        match plan.step {
            DrainStep::Cordon => world.node.spec.get_or_insert_default().unschedulable = Some(true),
            DrainStep::Evict { pods, grace } => {
                assert!(cordoned, "evicted before it was cordoned");
                pods.iter().for_each(|pod| world.evict(pod, grace));
            }
            DrainStep::Force(pods) => pods.iter().for_each(|pod| world.force(pod, limits.hung.expect("force is on"))),
            DrainStep::Wait => {}
            DrainStep::List => panic!("they were listed"),
            end @ (DrainStep::Done | DrainStep::GiveUp) => return (end, elapsed(since, world.now)),
        }
        world.pass(plan.requeue_after);
    }
    panic!("it never ends");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn it_ends_by_its_limit(kinds in prop::collection::vec(kind(), 0..12), ready in prop_oneof![Just("True"), Just("False"), Just("Unknown")], whole in 1_u64..2_000, hung in prop::option::of(1_u64..500)) {
        let limits = Limits { whole: Some(Duration::from_secs(whole)), hung: hung.map(Duration::from_secs) };
        let (end, took) = run(&mut World::new(&kinds, ready), limits);
        let limit = Duration::from_secs(whole);
        prop_assert!(took <= limit + POLL.0, "{took:?} of {limit:?}");
        prop_assert_eq!(end == DrainStep::GiveUp, took >= limit);
    }

    #[test]
    fn without_a_limit_it_ends_when_everybody_has_gone_who_must(kinds in prop::collection::vec(kind(), 0..12), ready in prop_oneof![Just("True"), Just("False")], hung in 1_u64..500) {
        let mut world = World::new(&kinds, ready);
        let (end, _) = run(&mut world, Limits { whole: None, hung: Some(Duration::from_secs(hung)) });
        prop_assert_eq!(end, DrainStep::Done);
        for (kind, pod) in &world.pods {
            let stays = kind.owner == Some("DaemonSet") || kind.mirror || kind.label.is_some() || matches!(kind.phase, "Succeeded" | "Failed");
            prop_assert!(stays || pod.metadata.deletion_grace_period_seconds == Some(0), "{:?} was left", kind);
        }
    }
}
