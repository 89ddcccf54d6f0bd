//! Whether a pod on a new Windows node reaches what pods need (`docs/pod-network.md`), and what to do to learn it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::network::LOOK_SOON;
use super::pod::{is_leaving, last_line, text, unscheduled};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::components::{Node, Probe, Probing, Target, is_outdated, probed};

/// So much is said.
const NAMED: usize = 5;

/// After so long a pod that was evicted, or that the kubelet refused, is made anew.
const FAILED: Duration = Duration::from_secs(60);

/// What to do about the pods that try out nodes.
#[derive(Debug, Default, PartialEq)]
pub struct Probes<'a> {
    /// Nodes on which a pod has reached everything, and was reached.
    pub passed: Vec<String>,
    pub make: Vec<Value>,
    pub remove: Vec<&'a Value>,
    /// What is to be said of each other node.
    pub said: Vec<String>,
}

/// Key of the taint that a cordoned node has. <https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-unschedulable>
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// `tainted`: those of the nodes that are to be tried out. `pods`: all pods of what CAPW brings. A node that is cordoned gets no pod: a drain
/// would wait for one after the other.
pub fn probes<'a>(tainted: &[String], nodes: &[Node], probe: &Probe, pods: &[&'a Value], now: Timestamp) -> Probes<'a> {
    let is_cordoned = |node: &&Node| node.taints.iter().any(|key| key == CORDONED);
    let cordoned: HashSet<&str> = nodes.iter().filter(is_cordoned).map(|node| node.object.name.as_str()).collect();
    let (left_out, tried): (Vec<&String>, Vec<&String>) = tainted.iter().partition(|node| cordoned.contains(node.as_str()));
    let mut probes = Probes { said: left_out.into_iter().map(|node| format!("{node}: it is cordoned")).collect(), ..Probes::default() };
    let mut live: HashMap<(Probing, String), &'a Value> = pods.iter().filter_map(|pod| Some((probed(pod)?, *pod))).collect();
    for node in tried {
        let (there, from_linux) = (live.remove(&(Probing::There, node.clone())), live.remove(&(Probing::FromLinux, node.clone())));
        let is_passed = probes.look(node, there, probe.pod(node), now);
        // It has an address once it has begun.
        let address = there.filter(|pod| !is_leaving(pod)).map(|pod| text(pod, "/status/podIP")).filter(|address| !address.is_empty());
        let is_reached = address.is_some_and(|address| probes.look(node, from_linux, probe.back(node, address), now));
        if is_passed && is_reached {
            probes.remove.extend(there.into_iter().chain(from_linux));
            probes.passed.push(node.clone());
        }
    }
    // Those of other nodes.
    probes.remove.extend(live.into_values().filter(|pod| !is_leaving(pod)));
    probes
}

/// All pods that try out nodes, where none is to be tried out.
pub fn unneeded<'a>(pods: &[&'a Value]) -> Vec<&'a Value> {
    pods.iter().copied().filter(|pod| probed(pod).is_some() && !is_leaving(pod)).collect()
}

impl<'a> Probes<'a> {
    /// Whether a pod of a node has reached everything; if not, what is done about it.
    fn look(&mut self, node: &str, pod: Option<&'a Value>, desired: Value, now: Timestamp) -> bool {
        let name = text(&desired, "/metadata/name").to_owned();
        let said = match pod {
            None => {
                self.make.push(desired);
                format!("pod {name} is made")
            }
            Some(pod) if is_leaving(pod) => format!("pod {name} is removed, to be made anew"),
            // What it has reached is no proof of what it did not try.
            Some(pod) if is_outdated(pod, &desired) => {
                self.remove.push(pod);
                format!("pod {name} is made anew with other settings")
            }
            Some(pod) => match state(pod) {
                State::Passed => return true,
                State::Failed(why) => {
                    if is_older(pod, FAILED, now) {
                        self.remove.push(pod);
                    }
                    format!("pod {name} failed, and is made anew: {why}")
                }
                State::Waits(why) => why,
            },
        };
        self.said.push(format!("{node}: {said}"));
        false
    }
}

/// The condition, and when to look again: pods are watched, and what else there is to do is done in the next look.
pub fn report(probes: &Probes<'_>) -> Option<(Desired, Duration)> {
    let named = probes.said.get(..NAMED).unwrap_or(&probes.said);
    let more = match probes.said.len() - named.len() {
        0 if named.is_empty() => return None,
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!("nodes that other pods do not come to yet: {}{more}", named.join("; "));
    Some((Desired::no(ConditionType::ComponentsReady, Reason::NodeNotVerified, message), LOOK_SOON))
}

/// How far a pod is.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Passed,
    Failed(String),
    Waits(String),
}

fn state(pod: &Value) -> State {
    if text(pod, "/status/phase") == "Failed" {
        return State::Failed(said(&[text(pod, "/status/message"), text(pod, "/status/reason")]).unwrap_or("it gives no reason").to_owned());
    }
    let mut waits = None;
    for target in Target::ALL {
        let Some(container) = of_name(pod.pointer("/spec/containers"), target) else { continue };
        let attempt = of_name(pod.pointer("/status/containerStatuses"), target).map_or(Attempt::None(None), attempt);
        let address = text(container, "/args/1");
        match attempt {
            Attempt::Passed => {}
            // What comes after it fails for the same reason.
            Attempt::Failed(why) => {
                let place = if address.starts_with('$') { String::new() } else { format!(" ({address})") };
                return State::Waits(format!("{}{place}: {why}: {}", target.failure(), target.remedy()));
            }
            Attempt::None(why) => waits = waits.or(Some(why)),
        }
    }
    match waits {
        None => State::Passed,
        Some(Some(why)) => State::Waits(format!("pod {} does not start: {why}", text(pod, "/metadata/name"))),
        Some(None) => {
            let why = unscheduled(pod).map(|why| format!(": {why}")).unwrap_or_default();
            State::Waits(format!("pod {} has not ended{why}", text(pod, "/metadata/name")))
        }
    }
}

/// How often a container has tried, and what came of the last time.
enum Attempt {
    Passed,
    Failed(String),
    /// None has ended; why none begins, if it does not.
    None(Option<String>),
}

fn attempt(status: &Value) -> Attempt {
    let ended = ["/state/terminated", "/lastState/terminated"].into_iter().find_map(|at| status.pointer(at));
    match ended {
        Some(ended) if ended.get("exitCode").and_then(Value::as_i64) == Some(0) => Attempt::Passed,
        Some(ended) => {
            let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
            Attempt::Failed(
                said(&[last_line(text(ended, "/message")).trim()])
                    .map_or_else(|| format!("agnhost ended with {code}, and said nothing"), str::to_owned),
            )
        }
        None => {
            let is_usual = |reason: &str| ["ContainerCreating", "PodInitializing"].contains(&reason);
            let (reason, message) = (text(status, "/state/waiting/reason"), text(status, "/state/waiting/message"));
            Attempt::None(said(&[message, reason]).filter(|_| !is_usual(reason)).map(str::to_owned))
        }
    }
}

/// The first of them that says something.
fn said<'v>(texts: &[&'v str]) -> Option<&'v str> {
    texts.iter().copied().find(|text| !text.is_empty())
}

fn of_name(containers: Option<&Value>, target: Target) -> Option<&Value> {
    containers?.as_array()?.iter().find(|container| text(container, "/name") == target.container())
}

fn is_older(pod: &Value, than: Duration, now: Timestamp) -> bool {
    let made: Option<Timestamp> = text(pod, "/metadata/creationTimestamp").parse().ok();
    made.is_some_and(|made| now.duration_since(made).unsigned_abs() >= than && made < now)
}

#[cfg(test)]
mod tests;
