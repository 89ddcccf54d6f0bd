//! Converts the state of a guest without a Node, and of a Node that is not Ready, to symptoms, for `capw diagnose` and the condition NodeJoined.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::engine::{Finding, diagnose};
use super::objects::{condition_line, name, seconds};
use super::symptom::{Source, Symptom};
use crate::api::capi::NODE_READY;
use crate::api::condition::{self, ConditionType};
use crate::api::machine::{BootstrapProgress, WindowsMachine};
use crate::vm::state;

/// A guest that reports nothing for this number of seconds does not read its data.
const SILENT: i64 = 900;
/// A restart takes less than this, in seconds.
const RESTART: i64 = 900;
/// More starts of Windows before the join than any plan requests.
const STARTS: i64 = 6;
/// Seconds for which a new Node may be not Ready, until its network plug-in has started.
const SETTLING: i64 = 60;
/// The text that Cluster API puts before the message of the Node.
const NODE_READY_PREFIX: &str = "* Node.Ready: ";

/// The symptoms so far, and the time until a further symptom may appear without any other change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assessment {
    pub symptoms: Vec<Symptom>,
    pub next: Option<Duration>,
}

impl Assessment {
    /// Returns cause, remedy and rule of the surest finding. The text contains nothing that grows with time, so the condition stays the same.
    pub fn sentence(&self) -> Option<String> {
        diagnose(&self.symptoms).first().map(Finding::sentence)
    }

    /// Adds a symptom once `left` seconds have passed; until then it records the time.
    fn note(&mut self, left: i64, symptom: impl FnOnce() -> Symptom) {
        match u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs) {
            Some(left) => self.next = Some(self.next.map_or(left, |next| next.min(left))),
            None => self.symptoms.push(symptom()),
        }
    }
}

/// Returns the symptoms of a WindowsMachine; none once its Node has joined.
pub fn of_machine(object: &WindowsMachine, now: Timestamp) -> Vec<Symptom> {
    let Some(status) = &object.status else { return Vec::new() };
    if condition::is_true(&status.conditions, ConditionType::NodeJoined) {
        return Vec::new();
    }
    of_guest(object, status.bootstrap.as_ref(), now).symptoms
}

/// Returns the symptoms of a guest without a Node, from its last report.
pub fn of_guest(object: &WindowsMachine, said: Option<&BootstrapProgress>, now: Timestamp) -> Assessment {
    let at = format!("WindowsMachine {}", name(&object.metadata));
    let report = said.map(|said| {
        let code = (said.state == state::FAILED).then(|| u32::try_from(said.code).unwrap_or_default());
        Symptom { at: format!("{at} status.bootstrap"), ..Symptom::step(&said.item, &said.state, code, &said.message) }
    });
    let mut found = Assessment { symptoms: report.into_iter().collect(), next: None };
    for (left, fact) in waits(object, said, now) {
        found.note(left, || Symptom::new(Source::Machine, at.clone(), &fact));
    }
    found
}

/// Returns the steps that may take too long: the seconds left, and the symptom after that.
fn waits(object: &WindowsMachine, said: Option<&BootstrapProgress>, now: Timestamp) -> Vec<(i64, String)> {
    let Some(on) = object.status.as_ref().and_then(|status| status.powered_on_at.as_ref()) else { return Vec::new() };
    let on = seconds(Some(on), now);
    let deadline = object.spec.join_deadline_seconds;
    let Some(said) = said else {
        return vec![(SILENT.min(deadline) - on, format!("the guest has said nothing for {on} s since power on, and there is no Node"))];
    };
    let ago = seconds(Some(&said.time), now);
    let mut waits = Vec::new();
    if said.state != state::FAILED {
        let fact = format!("no Node {on} s after power on, and the guest spoke of {} ({}) last, {ago} s ago", said.item, said.state);
        waits.push((deadline - on, fact));
    }
    if said.state == state::REBOOT {
        waits.push((RESTART - ago, format!("the guest asked for a restart {ago} s ago and has not come back")));
    }
    if said.boot >= STARTS {
        waits.push((0, format!("Windows has started {} times and there is no Node", said.boot)));
    }
    waits
}

/// Returns the symptom of a Node that joined and is not Ready, from the `conditions` of its Machine.
pub fn of_node_ready(conditions: &[Condition], node: &str, now: Timestamp) -> Assessment {
    let mut found = Assessment::default();
    let Some(ready) = condition::find(conditions, NODE_READY).filter(|c| c.status != "True") else { return found };
    let message = ready.message.strip_prefix(NODE_READY_PREFIX).unwrap_or(&ready.message);
    let symptom = || Symptom::new(Source::Node, format!("Node {node}"), &condition_line("Ready", &ready.status, &ready.reason, message));
    found.note(SETTLING - seconds(Some(&ready.last_transition_time), now), symptom);
    found
}
