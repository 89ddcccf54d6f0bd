//! What a person sees while machines come and go: one line for each change of one. It must not change anything.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it talks to a person and shows the time")]

use std::collections::BTreeMap;
use std::fmt::Display;

use serde_json::Value;

use crate::stage::Stage;
use crate::world::{Kind, condition, text};

/// Longest message on a line, in characters.
const MESSAGE: usize = 90;

/// One machine, as far as it is worth a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Phase of the Machine, or `Deleted`.
    pub phase: String,
    /// Reason why it is not further.
    pub reason: String,
    /// Its Node, with `Ready` or `NotReady`; `-` if there is none.
    pub node: String,
    /// Version of Kubernetes.
    pub version: String,
    /// Whether it has a Node.
    pub joined: bool,
    /// Whether it is Running with a Ready Node.
    pub ready: bool,
}

/// Remembers what has been shown.
#[derive(Default)]
pub struct Progress {
    shown: BTreeMap<String, State>,
}

impl Progress {
    /// Shows what has changed since the last look and gives the machines that are there, by name.
    pub async fn look(&mut self, stage: &Stage) -> BTreeMap<String, State> {
        let machines = stage.cp.list(Kind::MACHINE, Some(stage.namespace)).await;
        let own = stage.cp.list(Kind::WINDOWS_MACHINE, Some(stage.namespace)).await;
        let nodes = stage.cp.list(Kind::NODE, None).await;
        let mut seen = BTreeMap::new();
        for machine in &machines {
            let name = text(machine, "/metadata/name");
            let by_name = |objects: &[Value], name: &str| objects.iter().find(|object| text(object, "/metadata/name") == name).cloned();
            let own = by_name(&own, text(machine, "/spec/infrastructureRef/name"));
            let node = by_name(&nodes, text(machine, "/status/nodeRef/name"));
            let (reason, message) = own.as_ref().map_or_else(Default::default, word);
            let state = state(machine, node.as_ref(), reason);
            let message = if state.ready { String::new() } else { message };
            if self.shown.get(name) != Some(&state) {
                line(name, &state, &message);
            }
            seen.insert(name.to_owned(), state);
        }
        for (name, state) in &self.shown {
            if !seen.contains_key(name) {
                line(name, &State { phase: "Deleted".to_owned(), reason: String::new(), node: "-".to_owned(), ..state.clone() }, "");
            }
        }
        self.shown.clone_from(&seen);
        seen
    }
}

fn state(machine: &Value, node: Option<&Value>, reason: String) -> State {
    let phase = text(machine, "/status/phase").to_owned();
    let node_ready = node.is_some_and(|node| condition(node, "Ready").is_some_and(|ready| text(ready, "/status") == "True"));
    let node =
        node.map_or_else(|| "-".to_owned(), |node| format!("{} {}", text(node, "/metadata/name"), if node_ready { "Ready" } else { "NotReady" }));
    State { joined: node != "-", ready: phase == "Running" && node_ready, phase, reason, node, version: text(machine, "/spec/version").to_owned() }
}

/// Reason and message of what a WindowsMachine is at: going, its VM, its Node.
fn word(own: &Value) -> (String, String) {
    let of = |kind: &str, settled: &str| condition(own, kind).filter(|found| text(found, "/status") != settled);
    let found = of("Deleting", "False").or_else(|| of("VirtualMachineReady", "True")).or_else(|| condition(own, "NodeJoined"));
    found.map_or_else(Default::default, |found| (text(found, "/reason").to_owned(), text(found, "/message").to_owned()))
}

fn line(name: &str, state: &State, message: &str) {
    let State { phase, reason, node, version, .. } = state;
    let short: String = message.chars().take(MESSAGE).collect();
    let more = if short.len() < message.len() { "…" } else { "" };
    let text = format!("{name:<12} {version:<8} {phase:<12} {reason:<24} node {node:<19} {short}{more}");
    say(text.trim_end());
}

/// One line, with the time of day in UTC.
pub fn say(what: impl Display) {
    println!("{} {what}", jiff::Timestamp::now().strftime("%T"));
}
