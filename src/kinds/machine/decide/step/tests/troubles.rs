//! Reports about a Node that does not appear, or appears but is not Ready, in the world of `world.rs`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;
use serde_json::json;

use super::world::{World, at, machine_of_core};
use crate::api::capi::{Machine, NODE_READY};
use crate::api::condition::{self, Reason};
use crate::vm::GuestReport;

const DEADLINE: i64 = 2_700;
const NO_PLUGIN: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
const NO_TOKEN: &str = "C:\\k\\kubeadm.exe ended with 1: error: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"";

/// A machine that runs, and whose Node has not appeared.
fn running() -> World {
    let mut w = World::new();
    w.settle();
    assert_eq!(w.reason("NodeJoined"), Reason::Joining);
    w
}

fn report(item: &str, state: &str, boot: u32, message: &str) -> Option<GuestReport> {
    Some(GuestReport { sequence: 9, boot, item: item.into(), state: state.into(), code: 0, message: message.into() })
}

/// The Machine of a Node whose condition Ready has had this status since that second, with the message that core writes.
fn with_node(status: &str, reason: &str, words: &str, since: i64) -> Machine {
    let mut machine = machine_of_core(true, Some("win-1"));
    let message = if words.is_empty() { String::new() } else { format!("* Node.Ready: {words}") };
    let ready = json!({"type": NODE_READY, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(since).to_string()});
    machine.status.as_mut().unwrap().conditions = vec![serde_json::from_value(ready).unwrap()];
    machine
}

impl World {
    fn after(&mut self, seconds: i64) {
        self.now += seconds;
        self.pass();
    }

    /// Seconds until the next pass.
    fn next(&self) -> Option<u64> {
        self.look.map(|look| look.as_secs())
    }

    fn since_power_on(&self) -> i64 {
        let on = self.object.as_ref().unwrap().status.as_ref().unwrap().powered_on_at.clone().unwrap();
        crate::domain::age::seconds(on.0, at(self.now))
    }

    fn joined(&self) -> Condition {
        condition::find(&self.object.as_ref().unwrap().status.as_ref().unwrap().conditions, "NodeJoined").unwrap().clone()
    }
}

#[test]
fn a_silent_guest_is_told_of_after_a_quarter_of_an_hour() {
    let mut w = running();
    assert_eq!(w.next(), Some(u64::try_from(900 - w.since_power_on()).unwrap()), "nothing else triggers a pass");
    assert!(!w.joined().message.contains("(F01)"));
    let left = 900 - w.since_power_on();
    w.after(left - 1);
    assert_eq!(w.joined().message, "the VM runs; its Node has not appeared yet");
    w.after(1);
    let told = w.joined();
    assert!(told.reason == Reason::Joining && told.status == "False", "{told:?}");
    assert!(told.message.starts_with("the VM runs; its Node has not appeared yet: cloudbase-init is not in the image"), "{}", told.message);
    assert!(told.message.ends_with("(F01)"), "{}", told.message);
    assert_eq!((w.next(), w.reason("Ready")), (Some(u64::try_from(DEADLINE - w.since_power_on()).unwrap()), Reason::Provisioned));
    w.after(DEADLINE);
    let told = w.joined();
    assert!(told.reason == Reason::NodeNeverJoined && told.message.contains("(F01); a MachineHealthCheck"), "{told:?}");
    assert_eq!(w.next(), None);
}

#[test]
fn a_deadline_shorter_than_that_is_the_limit_of_silence() {
    let mut w = running();
    w.object.as_mut().unwrap().spec.join_deadline_seconds = 300;
    w.after(300);
    assert!(
        w.joined().message.starts_with("no Node has appeared 300 s after power on. cloudbase-init is not in the image"),
        "{}",
        w.joined().message
    );
}

/// Observation → condition: the guest's report, seconds since then, reason, rule.
#[test]
fn what_a_guest_that_is_still_expected_is_told_of() {
    let table = [
        ("it works", report("dir-k", "done", 1, ""), 100, Reason::Joining, None),
        ("a restart that does not happen", report("settle", "reboot", 1, ""), 900, Reason::Joining, Some("F03")),
        ("a restart that may yet happen", report("settle", "reboot", 1, ""), 700, Reason::Joining, None),
        ("start after start", report("settle", "started", 6, ""), 0, Reason::Joining, Some("F02")),
        ("as many starts as a plan asks for", report("settle", "started", 5, ""), 0, Reason::Joining, None),
        ("its words, while it tries again", report("join", "retry", 1, NO_TOKEN), 0, Reason::Joining, Some("F45")),
        ("words that no rule knows", report("join", "retry", 1, "no route"), 0, Reason::Joining, None),
        ("an optional step", report("log", "warned", 1, "There is not enough space on the disk."), 0, Reason::Joining, Some("F26")),
        ("no Node in time", report("join", "started", 1, "attempt 1 of 3"), DEADLINE, Reason::NodeNeverJoined, Some("F07")),
        ("no Node in time, and its words say why", report("join", "retry", 1, NO_TOKEN), DEADLINE, Reason::NodeNeverJoined, Some("F45")),
        ("no Node in time, since it waits for a restart", report("settle", "reboot", 1, ""), DEADLINE, Reason::NodeNeverJoined, Some("F03")),
    ];
    for (what, said, seconds, reason, rule) in table {
        let mut w = running();
        w.vm.as_mut().unwrap().report = said;
        w.settle();
        w.after(seconds);
        let told = w.joined();
        assert_eq!(told.reason, reason, "{what}");
        assert_eq!(w.reason("Ready"), Reason::Provisioned, "{what}");
        let rules: Vec<&str> =
            told.message.split('(').skip(1).filter(|rest| rest.starts_with('F')).filter_map(|rest| rest.split(')').next()).collect();
        assert_eq!(rules, rule.into_iter().collect::<Vec<_>>(), "{what}: {}", told.message);
        assert!(!told.message.contains("s ago") && !told.message.contains(".."), "{what}: {}", told.message);
    }
}

#[test]
fn words_and_their_cause_are_written_together_and_go_together() {
    let mut w = running();
    w.vm.as_mut().unwrap().report = report("join", "retry", 1, NO_TOKEN);
    w.pass();
    let status = w.object.as_ref().unwrap().status.clone().unwrap();
    assert_eq!(status.bootstrap.unwrap().message, NO_TOKEN);
    assert!(w.joined().message.contains("(F45)"));
    w.vm.as_mut().unwrap().report = report("join", "done", 1, "");
    w.after(60);
    assert_eq!(w.joined().message, "the VM runs; its Node has not appeared yet");
}

/// Ready of the Node → addition to NodeJoined: status, core's reason, the kubelet's message, rule.
#[test]
fn a_node_that_is_not_ready_has_joined_and_its_machine_says_why() {
    let table = [
        ("no plug-in", "False", "NodeNotReady", NO_PLUGIN, Some("F60")),
        (
            "containerd is down",
            "False",
            "NodeNotReady",
            "[container runtime is down, PLEG is not healthy: pleg was last seen active 4m10s ago]",
            Some("F20"),
        ),
        ("no heartbeat", "Unknown", "NodeReadyUnknown", "Kubelet stopped posting node status.", Some("F52")),
        ("something else", "False", "NodeNotReady", "node is shutting down", None),
        ("the workload cluster is away", "Unknown", "NodeConnectionDown", "Remote connection not established yet", None),
        ("it is Ready", "True", "NodeReady", "", None),
    ];
    for (what, status, why, words, rule) in table {
        let mut w = running();
        w.owner = with_node(status, why, words, w.now);
        w.pass();
        let before = w.joined();
        assert_eq!(
            (before.message.as_str(), before.status.as_str(), before.reason.as_str()),
            ("Node win-1", "True", Reason::Joined.as_str()),
            "{what}: at first"
        );
        assert_eq!(w.next(), (status != "True").then_some(60), "{what}");
        w.after(60);
        let told = w.joined();
        assert_eq!((told.status, told.reason, told.last_transition_time), (before.status, before.reason, before.last_transition_time), "{what}");
        match rule {
            Some(rule) => {
                assert!(told.message.starts_with("Node win-1; it is not Ready: "), "{what}: {}", told.message);
                assert!(told.message.ends_with(&format!(" ({rule})")), "{what}: {}", told.message);
            }
            None => assert_eq!(told.message, "Node win-1", "{what}"),
        }
        assert_eq!((w.next(), w.reason("Ready")), (None, Reason::Provisioned), "{what}");
        w.owner = with_node("True", "NodeReady", "", w.now);
        w.pass();
        assert_eq!(w.joined().message, "Node win-1", "{what}: it is well again");
    }
}

fn any_report() -> impl Strategy<Value = Option<GuestReport>> {
    let words = prop::sample::select(vec!["", "no route", "attempt 2 of 3", NO_TOKEN, "There is not enough space on the disk."]);
    let state = prop::sample::select(vec!["started", "done", "retry", "warned", "reboot", "failed", "finished"]);
    let item = prop::sample::select(vec!["settle", "join", "plan"]);
    let said = (item, state, 1u32..9, words).prop_map(|(item, state, boot, words)| report(item, state, boot, words));
    prop_oneof![1 => Just(None), 6 => said]
}

fn any_node() -> impl Strategy<Value = Option<(&'static str, &'static str)>> {
    let node = prop::sample::select(vec![("False", NO_PLUGIN), ("Unknown", "Kubelet stopped posting node status."), ("False", "x"), ("True", "")]);
    prop_oneof![3 => Just(None), 2 => node.prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Without new events, the status stays unchanged until the time for which the pass requested a requeue: nothing is written repeatedly,
    /// and no finding is missed because nothing triggered a pass.
    #[test]
    fn a_status_holds_until_the_next_look(
        steps in prop::collection::vec((0..2_000i64, any_report(), any_node()), 1..8),
        share in prop::collection::vec(0.0..1.0f64, 4),
    ) {
        let mut w = running();
        for (wait, said, node) in steps {
            w.now += wait;
            w.vm.as_mut().unwrap().report = said;
            w.owner = node.map_or_else(|| machine_of_core(true, None), |(status, words)| with_node(status, "NodeNotReady", words, w.now - 30));
            // The seed may be detached first: then the next pass reports.
            w.pass();
            w.pass();
            let (told, start) = (w.object.as_ref().unwrap().status.clone(), w.now);
            let horizon = w.next().map_or(100_000.0, |next| f64::from(u32::try_from(next).unwrap()));
            let mut offsets: Vec<f64> = share.iter().map(|share| (share * horizon).floor()).collect();
            offsets.sort_by(f64::total_cmp);
            for offset in offsets {
                #[allow(clippy::cast_possible_truncation, reason = "at most 100,000 seconds")]
                let now = start + offset as i64;
                w.now = now;
                w.pass();
                prop_assert_eq!(&w.object.as_ref().unwrap().status, &told, "{} s later, of {}", now - start, horizon);
            }
        }
    }
}
