//! Converts objects of the management and the workload cluster to symptoms: one line per fact, in fixed forms that the rules match.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

use super::symptom::{Source, Symptom};
use crate::api::components::UNVERIFIED_TAINT;
use crate::api::condition::{self, ConditionType, Reason};
use crate::api::machine::{MachineAddressType, WindowsMachine};

/// The time in seconds within which a kubelet's certificate request is normally approved.
const APPROVAL: i64 = 60;

pub(super) fn seconds(since: Option<&Time>, now: Timestamp) -> i64 {
    since.map_or(0, |since| now.duration_since(since.0).as_secs().max(0))
}

pub(super) fn name(meta: &ObjectMeta) -> String {
    let name = meta.name.clone().unwrap_or_default();
    meta.namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// Returns the conditions that report a problem, as `<kind> <type>=<status> <reason>: <message>`, each with its reason.
pub fn problems(kind: &str, meta: &ObjectMeta, conditions: &[Condition]) -> Vec<(Symptom, Reason)> {
    told(kind, meta, conditions, condition::problem)
}

/// Whether the Node among these symptoms has the taint that keeps pods away until its network works.
pub fn is_unverified(symptoms: &[Symptom]) -> bool {
    let taint = format!("taint {UNVERIFIED_TAINT}:");
    symptoms.iter().any(|symptom| symptom.source == Source::Node && symptom.text.starts_with(&taint))
}

/// Returns the problems of a WindowsCluster. For a Node whose network is not known to work, components that are not ready yet also count.
pub fn of_windows_cluster(meta: &ObjectMeta, conditions: &[Condition], is_unverified: bool) -> Vec<(Symptom, Reason)> {
    let waits_for = |c: &Condition| is_unverified && c.type_ == ConditionType::ComponentsReady.as_str();
    let reason = |c: &Condition| if waits_for(c) { Reason::from_name(&c.reason) } else { condition::problem(c) };
    told("WindowsCluster", meta, conditions, reason)
}

fn told(kind: &str, meta: &ObjectMeta, conditions: &[Condition], reason: impl Fn(&Condition) -> Option<Reason>) -> Vec<(Symptom, Reason)> {
    let wrong = conditions.iter().filter(|c| c.status != "True").filter_map(|c| Some((c, reason(c)?)));
    let line = |c: &Condition| format!("{kind} {}={} {}: {}", c.type_, c.status, c.reason, c.message);
    wrong.map(|(c, reason)| (Symptom::new(Source::Machine, format!("{kind} {}", name(meta)), &line(c)), reason)).collect()
}

/// Returns a condition of a Node in the form that the rules match.
pub(super) fn condition_line(type_: &str, status: &str, reason: &str, message: &str) -> String {
    format!("{type_}={status} {reason}: {message}")
}

/// Returns the symptoms of a Node. `machine` is the WindowsMachine that the Node belongs to.
pub fn of_node(node: &Node, machine: &WindowsMachine, now: Timestamp) -> Vec<Symptom> {
    let mut facts = Vec::new();
    let status = node.status.clone().unwrap_or_default();
    for c in status.conditions.iter().flatten() {
        let good = if c.type_ == "Ready" { "True" } else { "False" };
        if c.status != good {
            let (reason, message) = (c.reason.as_deref().unwrap_or_default(), c.message.as_deref().unwrap_or_default());
            facts.push(condition_line(&c.type_, &c.status, reason, message));
        }
    }
    for taint in node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()) {
        let since = taint.time_added.as_ref().or(node.metadata.creation_timestamp.as_ref());
        let value = taint.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
        facts.push(format!("taint {}{value}:{} for {} s", taint.key, taint.effect, seconds(since, now)));
    }
    let of_machine = machine.status.clone().unwrap_or_default();
    let known: Vec<String> = of_machine.addresses.iter().filter(|a| a.type_ == MachineAddressType::InternalIp).map(|a| a.address.clone()).collect();
    for address in status.addresses.iter().flatten().filter(|a| a.type_ == "InternalIP") {
        if address.address.starts_with("169.254.") {
            facts.push(format!("InternalIP {}", address.address));
        } else if !known.is_empty() && !known.contains(&address.address) {
            facts.push(format!("InternalIP {} is none of the addresses of the VM: {}", address.address, known.join(", ")));
        }
    }
    let own = node.metadata.name.clone().unwrap_or_default();
    if let Some(host) = of_machine.host_name.filter(|host| *host != own) {
        facts.push(format!("named {own}, but the host name of its machine is {host}"));
    }
    facts.extend(status.node_info.map(|info| format!("kernel {}", info.kernel_version)));
    let at = format!("Node {own}");
    facts.iter().map(|fact| Symptom::new(Source::Node, at.clone(), fact)).collect()
}

/// Returns the second and further Nodes that claim the provider ID of one machine.
pub fn of_twins(nodes: &[Node]) -> Vec<Symptom> {
    let twins = nodes.iter().skip(1).map(|node| node.metadata.name.clone().unwrap_or_default());
    twins.map(|twin| Symptom::new(Source::Node, format!("Node {twin}"), "another Node has the same providerID")).collect()
}

/// Returns a request of the node's kubelet that was denied, or has waited too long for approval.
pub fn of_request(request: &CertificateSigningRequest, now: Timestamp) -> Option<Symptom> {
    let user = request.spec.username.clone().unwrap_or_default();
    let conditions = request.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let age = seconds(request.metadata.creation_timestamp.as_ref(), now);
    let how = match conditions.iter().find(|c| c.type_ != "Approved") {
        Some(c) => format!("{}: {}", c.type_.to_lowercase(), c.message.as_deref().unwrap_or_default()),
        None if conditions.is_empty() && age >= APPROVAL => format!("pending for {age} s"),
        None => return None,
    };
    let at = format!("CertificateSigningRequest {}", name(&request.metadata));
    Some(Symptom::new(Source::Request, at, &format!("{} of {user} {how}", request.spec.signer_name)))
}

/// Returns a waiting Pod on the Windows node: a Pod for Linux, or a Pod that waits for the cause that its events name.
pub fn of_pod(pod: &Pod) -> Option<Symptom> {
    let statuses = pod.status.as_ref();
    let containers = statuses.into_iter().flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()));
    let waiting = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.clone()).next()?;
    let daemon = pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet");
    let at = format!("Pod {}", name(&pod.metadata));
    let line = if daemon && !asks_for_windows(pod) {
        format!("of a DaemonSet that does not ask for Windows: {}, {waiting}", name(&pod.metadata))
    } else {
        format!("waiting: {waiting}")
    };
    Some(Symptom::new(Source::Pod, at, &line))
}

fn asks_for_windows(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let selected = spec.node_selector.as_ref().is_some_and(|s| s.iter().any(|(key, value)| key.ends_with("kubernetes.io/os") && value == "windows"));
    let declared = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    // DaemonSet pods always have an affinity to their node; only an affinity that names the operating system counts.
    let affine =
        spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()).is_some_and(
            |required| {
                let terms = required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
                terms.into_iter().any(|e| e.key.ends_with("kubernetes.io/os") && e.values.iter().flatten().any(|value| value == "windows"))
            },
        );
    selected || declared || affine
}

/// Returns a warning event as a symptom.
pub fn of_event(event: &Event) -> Option<Symptom> {
    if event.type_.as_deref() != Some("Warning") {
        return None;
    }
    let about = &event.involved_object;
    let at = format!("event of {} {}", about.kind.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default());
    let line = format!("{}: {}", event.reason.as_deref().unwrap_or_default(), event.message.as_deref().unwrap_or_default());
    Some(Symptom::new(Source::Event, at, &line))
}
