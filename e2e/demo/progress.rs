//! The demo's output while machines come and go: one line for each change. It must not change anything.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it talks to a person and shows the time")]

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Instant;

use capw::api::name::VmUuid;
use capw::vm::MachineKey;
use serde_json::Value;

use crate::late::{Step, Waits, Watch};
use crate::stage::Stage;
use crate::world::{Kind, condition, text};

/// Longest name of a VM, in characters, as CAPW names them on libvirt.
const VM_NAME: usize = 100;
/// Longest message on a line, in characters.
const MESSAGE: usize = 90;

/// The state of one machine, as far as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Phase of the Machine, or `Deleted`.
    pub phase: String,
    /// Reason why the machine is not further.
    pub reason: String,
    /// The Node of the machine, with `Ready` or `NotReady`; `-` if there is none.
    pub node: String,
    /// Version of Kubernetes.
    pub version: String,
    /// Whether the machine has a Node.
    pub joined: bool,
    /// Whether the machine is Running with a Ready Node.
    pub ready: bool,
    /// The step that the machine waits for.
    pub step: Option<Step>,
}

/// The states that have been shown.
#[derive(Default)]
pub struct Progress {
    shown: BTreeMap<String, State>,
    watch: Watch,
}

impl Progress {
    /// Shows the changes since the last poll, and reports each late step once. Returns the existing machines by name.
    /// `is_awaited`: a Cluster without machines waits for something, too.
    pub async fn look(&mut self, stage: &Stage, is_awaited: bool) -> BTreeMap<String, State> {
        let machines = stage.cp.list(Kind::MACHINE, Some(stage.namespace)).await;
        let own = stage.cp.list(Kind::WINDOWS_MACHINE, Some(stage.namespace)).await;
        let nodes = stage.cp.list(Kind::NODE, None).await;
        let (mut seen, mut waiting) = (BTreeMap::new(), BTreeMap::new());
        for machine in &machines {
            let name = text(machine, "/metadata/name");
            let by_name = |objects: &[Value], name: &str| objects.iter().find(|object| text(object, "/metadata/name") == name).cloned();
            let own = by_name(&own, text(machine, "/spec/infrastructureRef/name"));
            let node = by_name(&nodes, text(machine, "/status/nodeRef/name"));
            let (reason, message) = own.as_ref().map_or_else(Default::default, word);
            let state = state(machine, own.as_ref(), node.as_ref(), reason);
            waiting.extend(state.step.map(|step| (name.to_owned(), Waits { step, vm: own.as_ref().map(vm_name).unwrap_or_default() })));
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
        if is_awaited && machines.is_empty() {
            waiting.insert("the Cluster".to_owned(), Waits { step: Step::Cluster, vm: String::new() });
        }
        self.watch.late(&waiting, stage.guests(), &stage.programs(), Instant::now()).iter().for_each(say);
        self.shown.clone_from(&seen);
        seen
    }
}

fn state(machine: &Value, own: Option<&Value>, node: Option<&Value>, reason: String) -> State {
    let is_true =
        |object: Option<&Value>, kind: &str| object.and_then(|object| condition(object, kind)).is_some_and(|found| text(found, "/status") == "True");
    let (phase, node_ready) = (text(machine, "/status/phase").to_owned(), is_true(node, "Ready"));
    let (joined, ready) = (node.is_some(), phase == "Running" && node_ready);
    let step = if !text(machine, "/metadata/deletionTimestamp").is_empty() {
        Some(Step::Removal)
    } else if joined {
        (!ready).then_some(Step::Ready)
    } else if is_true(own, "VirtualMachineReady") {
        Some(Step::Join)
    } else {
        Some(Step::Vm)
    };
    let node =
        node.map_or_else(|| "-".to_owned(), |node| format!("{} {}", text(node, "/metadata/name"), if node_ready { "Ready" } else { "NotReady" }));
    State { joined, ready, phase, reason, node, version: text(machine, "/spec/version").to_owned(), step }
}

/// The name that CAPW gives to the VM of a WindowsMachine on its hypervisor.
fn vm_name(own: &Value) -> String {
    let vm = VmUuid::of(text(own, "/metadata/uid"));
    MachineKey { vm, cluster: String::new(), name: text(own, "/metadata/name").to_owned() }.vm_name(VM_NAME)
}

/// Reason and message of a WindowsMachine's current step: deletion, VM, Node.
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

/// Prints one line, with the time of day in UTC.
pub fn say(what: impl Display) {
    println!("{} {what}", jiff::Timestamp::now().strftime("%T"));
}
