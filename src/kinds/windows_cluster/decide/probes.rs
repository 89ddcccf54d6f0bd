//! Decides whether a pod on a new Windows node reaches what pods need (`docs/pod-network.md`), and how to find that out.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::network::RECHECK_SOON;
use crate::api::components::ProbeTarget;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::components::{ANSWER, Node, PORT, Probe, Probing, is_outdated, probed};
use crate::domain::pod::{condition, is_leaving, last_line, text, unscheduled};

/// The most nodes that a message names.
const NAMED: usize = 5;

/// The age at which a pod that was evicted, or that the kubelet refused, is recreated.
const FAILED: Duration = Duration::from_secs(60);

/// The changes to the probe pods.
#[derive(Debug, Default, PartialEq)]
pub struct Probes<'a> {
    /// Nodes on which a pod has reached all its targets, and was reached itself.
    pub passed: Vec<String>,
    pub make: Vec<Value>,
    pub remove: Vec<&'a Value>,
    /// The message about each other node.
    pub said: Vec<String>,
}

/// Key of the taint that a cordoned node has. <https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-unschedulable>
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// `tainted`: the nodes to probe. `live`: the existing objects, including all pods of what CAPW brings, and its Services for probes. A cordoned
/// node gets no pod: a drain would wait for one pod after the other.
pub fn probes<'a>(tainted: &[String], nodes: &[Node], probe: &Probe, live: &'a [Value], now: Timestamp) -> Probes<'a> {
    let named: HashMap<&str, &Node> = nodes.iter().map(|node| (node.object.name.as_str(), node)).collect();
    let is_cordoned = |node: &&String| named.get(node.as_str()).is_some_and(|node| node.taints.iter().any(|key| key == CORDONED));
    let (left_out, tried): (Vec<&String>, Vec<&String>) = tainted.iter().partition(is_cordoned);
    let mut probes = Probes { said: left_out.into_iter().map(|node| format!("{node}: it is cordoned")).collect(), ..Probes::default() };
    let mut live: HashMap<(Probing, String), &'a Value> = live.iter().filter_map(|object| Some((probed(object)?, object))).collect();
    for node in tried {
        let mut of = |probing| live.remove(&(probing, node.clone()));
        let (there, from_linux, service) = (of(Probing::There), of(Probing::FromLinux), of(Probing::NodePort));
        let tried = probes.look(node, there, probe.pod(node), now);
        let Some(pod) = there.filter(|_| tried != Tried::Goes) else { continue };
        let service = service.filter(|service| is_of(service, pod));
        if service.is_none() && probe.reached.contains(&ProbeTarget::NodePort) {
            probes.make.push(probe.service(node, pod));
        }
        if tried == Tried::Waits {
            continue;
        }
        let is_reached = match addresses(probe, pod, named.get(node.as_str()).copied(), service) {
            Ok(addresses) => addresses.is_empty() || probes.look(node, from_linux, probe.back(node, &addresses), now) == Tried::Passed,
            Err(missing) => {
                probes.said.push(format!("{node}: {missing}"));
                false
            }
        };
        if is_reached {
            probes.remove.extend(there.into_iter().chain(from_linux));
            probes.passed.push(node.clone());
        }
    }
    // Pods of other nodes. A Service is deleted with its pod.
    probes.remove.extend(live.into_iter().filter(|((probing, _), pod)| *probing != Probing::NodePort && !is_leaving(pod)).map(|(_, pod)| pod));
    probes
}

/// The result of a probe pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// The pod has reached all its targets.
    Passed,
    Waits,
    /// The pod does not exist, or is about to be removed.
    Goes,
}

/// The addresses at which a pod is to be reached, or which one is not known yet.
fn addresses(probe: &Probe, pod: &Value, node: Option<&Node>, service: Option<&Value>) -> Result<Vec<(ProbeTarget, String)>, String> {
    let of_pod = || format!("{}:{PORT}", text(pod, "/status/podIP"));
    let of_node = || {
        let address = node.and_then(|node| node.addresses.iter().find(|address| address.is_ipv4())).ok_or("the Node has no IPv4 address")?;
        let port = service.and_then(|service| service.pointer("/spec/ports/0/nodePort"));
        port.map(|port| format!("{address}:{port}")).ok_or_else(|| format!("Service {} has no NodePort yet", text(pod, "/metadata/name")))
    };
    let address = |target: &ProbeTarget| Ok((*target, if *target == ProbeTarget::NodePort { of_node()? } else { of_pod() }));
    probe.reached.iter().map(address).collect()
}

/// Whether a Service was created for this pod, and not for an earlier pod.
fn is_of(service: &Value, pod: &Value) -> bool {
    let owners = service.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.is_some_and(|owners| owners.iter().any(|owner| text(owner, "/uid") == text(pod, "/metadata/uid")))
}

/// All probe pods, when no node is to be probed.
pub fn unneeded(live: &[Value]) -> Vec<&Value> {
    let is_pod = |object: &Value| probed(object).is_some_and(|(probing, _)| probing != Probing::NodePort);
    live.iter().filter(|object| is_pod(object) && !is_leaving(object)).collect()
}

impl<'a> Probes<'a> {
    /// Evaluates the pod of a node, and plans its changes.
    fn look(&mut self, node: &str, pod: Option<&'a Value>, desired: Value, now: Timestamp) -> Tried {
        let name = text(&desired, "/metadata/name").to_owned();
        let mut tried = Tried::Goes;
        let said = match pod {
            None => {
                self.make.push(desired);
                format!("pod {name} is made")
            }
            Some(pod) if is_leaving(pod) => format!("pod {name} is removed, to be recreated"),
            // Results with the old settings prove nothing about targets that the pod did not try.
            Some(pod) if is_outdated(pod, &desired) => {
                self.remove.push(pod);
                format!("pod {name} is recreated with other settings")
            }
            Some(pod) => match state(pod) {
                State::Passed => return Tried::Passed,
                State::Failed(why) => {
                    if is_older(pod, FAILED, now) {
                        self.remove.push(pod);
                    }
                    format!("pod {name} failed, and is recreated: {why}")
                }
                State::Waits(why) => {
                    tried = Tried::Waits;
                    why
                }
            },
        };
        self.said.push(format!("{node}: {said}"));
        tried
    }
}

/// The condition, and when to requeue: pods are watched, and other work is done in the next pass.
pub fn report(probes: &Probes<'_>) -> Option<(Desired, Duration)> {
    let named = probes.said.get(..NAMED).unwrap_or(&probes.said);
    let more = match probes.said.len() - named.len() {
        0 if named.is_empty() => return None,
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!("nodes that other pods do not come to yet: {}{more}", named.join("; "));
    Some((Desired::no(ConditionType::ComponentsReady, Reason::NodeNotVerified, message), RECHECK_SOON))
}

/// The state of a pod.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Passed,
    Failed(String),
    Waits(String),
}

fn state(pod: &Value) -> State {
    let name = text(pod, "/metadata/name");
    if is_failed(pod) {
        return State::Failed(said(&[text(pod, "/status/message"), text(pod, "/status/reason")]).unwrap_or("it gives no reason").to_owned());
    }
    let mut waits = None;
    for target in ProbeTarget::ALL {
        let Some(container) = of_name(pod, "spec", ["initContainers", "containers"], target.container()) else { continue };
        let address = text(container, "/args/1");
        match attempt_of(pod, target.container()) {
            Attempt::Passed => {}
            // Later targets fail for the same reason.
            Attempt::Failed(why) => {
                let place = if address.starts_with('$') { String::new() } else { format!(" ({address})") };
                return State::Waits(format!("{}{place}: {why}: {}", target.failure(), target.remedy()));
            }
            Attempt::None(why) => waits = waits.or(Some(why)),
        }
    }
    // A pod that answers becomes ready once its own connections have succeeded.
    let answers = of_name(pod, "spec", ["containers"], ANSWER).is_some();
    if waits.is_none() && answers && condition(pod, "Ready", "True").is_none() {
        waits = Some(match attempt_of(pod, ANSWER) {
            Attempt::Failed(why) => Some(why),
            Attempt::Passed => None,
            Attempt::None(why) => why,
        });
    }
    match waits {
        None => State::Passed,
        Some(Some(why)) => State::Waits(format!("pod {name} does not start: {why}")),
        Some(None) => {
            let why = unscheduled(pod).map(|why| format!(": {why}")).unwrap_or_default();
            State::Waits(format!("pod {name} {}{why}", if answers { "is not ready" } else { "has not ended" }))
        }
    }
}

fn attempt_of(pod: &Value, container: &str) -> Attempt {
    of_name(pod, "status", ["initContainerStatuses", "containerStatuses"], container).map_or(Attempt::None(None), attempt)
}

/// The result of a container's last attempt.
enum Attempt {
    Passed,
    Failed(String),
    /// No attempt has ended. The value: why none starts, if none does.
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

/// The first text that is not empty.
fn said<'v>(texts: &[&'v str]) -> Option<&'v str> {
    texts.iter().copied().find(|text| !text.is_empty())
}

/// The element of this name in one of several lists of a pod.
fn of_name<'v, const LISTS: usize>(pod: &'v Value, part: &str, lists: [&str; LISTS], name: &str) -> Option<&'v Value> {
    let all = lists.into_iter().filter_map(|list| pod.get(part)?.get(list)?.as_array()).flatten();
    all.into_iter().find(|element| text(element, "/name") == name)
}

/// Whether the pod was evicted, or the kubelet refused it: it will not start again.
fn is_failed(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Failed"
}

fn is_older(pod: &Value, than: Duration, now: Timestamp) -> bool {
    let made: Option<Timestamp> = text(pod, "/metadata/creationTimestamp").parse().ok();
    made.is_some_and(|made| now.duration_since(made).unsigned_abs() >= than && made < now)
}

#[cfg(test)]
mod tests;
