//! A guest whose Node has not come, and a Node that is not Ready → signs, for `capw diagnose` and for the condition NodeJoined alike.

use std::time::Duration;

use jiff::Timestamp;

use super::engine::{Finding, diagnose};
use super::objects::{condition_line, name, seconds};
use super::sign::{Sign, Source};
use crate::api::capi::{Machine, NODE_READY};
use crate::api::condition::{self, ConditionType};
use crate::api::machine::{BootstrapProgress, WindowsMachine};
use crate::vm::state;

/// A guest that has not said a word for so many seconds does not read its data.
const SILENT: i64 = 900;
/// A restart takes less, in seconds.
const RESTART: i64 = 900;
/// Starts of Windows before the join that are more than a plan asks for.
const STARTS: i64 = 6;
/// Every Node is not Ready at first, until its network plug-in has started, in seconds.
const SETTLING: i64 = 60;
/// What core puts before the words of the Node.
const NODE_READY_WORDS: &str = "* Node.Ready: ";

/// What shows by now, and after what time more may show though nothing happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Symptoms {
    pub signs: Vec<Sign>,
    pub next: Option<Duration>,
}

impl Symptoms {
    /// Cause, remedy and rule of the surest finding. It holds no time and no number that grows.
    pub fn sentence(&self) -> Option<String> {
        diagnose(&self.signs).first().map(Finding::sentence)
    }

    /// Takes in something that counts after `left` seconds, at once if there are none.
    fn note(&mut self, left: i64, sign: impl FnOnce() -> Sign) {
        match u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs) {
            Some(left) => self.next = Some(self.next.map_or(left, |next| next.min(left))),
            None => self.signs.push(sign()),
        }
    }
}

/// What a WindowsMachine says of its guest; nothing once its Node has come.
pub fn of_machine(object: &WindowsMachine, now: Timestamp) -> Vec<Sign> {
    let Some(status) = &object.status else { return Vec::new() };
    if condition::is_true(&status.conditions, ConditionType::NodeJoined) {
        return Vec::new();
    }
    of_guest(object, status.bootstrap.as_ref(), now).signs
}

/// What shows of a guest whose Node has not come and which has `said` something last.
pub fn of_guest(object: &WindowsMachine, said: Option<&BootstrapProgress>, now: Timestamp) -> Symptoms {
    let at = format!("WindowsMachine {}", name(&object.metadata));
    let words = said.map(|said| {
        let code = (said.state == state::FAILED).then(|| u32::try_from(said.code).unwrap_or_default());
        Sign { at: format!("{at} status.bootstrap"), ..Sign::step(&said.item, &said.state, code, &said.message) }
    });
    let mut found = Symptoms { signs: words.into_iter().collect(), next: None };
    for (left, fact) in waits(object, said, now) {
        found.note(left, || Sign::new(Source::Machine, at.clone(), &fact));
    }
    found
}

/// What may last too long: seconds until it does, and what is said of it then.
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

/// What the Machine says of a Node that has come and is not Ready.
pub fn of_node_ready(machine: &Machine, now: Timestamp) -> Symptoms {
    let mut found = Symptoms::default();
    let Some(status) = &machine.status else { return found };
    let Some(ready) = condition::find(&status.conditions, NODE_READY).filter(|c| c.status != "True") else { return found };
    let words = ready.message.strip_prefix(NODE_READY_WORDS).unwrap_or(&ready.message);
    let node = status.node_ref.as_ref().map(|node| node.name.as_str()).unwrap_or_default();
    let sign = || Sign::new(Source::Node, format!("Node {node}"), &condition_line("Ready", &ready.status, &ready.reason, words));
    found.note(SETTLING - seconds(Some(&ready.last_transition_time), now), sign);
    found
}
