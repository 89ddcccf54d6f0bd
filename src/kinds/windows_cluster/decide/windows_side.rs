//! The reports of a WindowsCluster about the programs that CAPW brings to Windows nodes (`docs/pod-network.md`).

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1;
use serde_json::{Value, json};

use super::network::{RECHECK, RECHECK_SOON};
use crate::api::cluster::WindowsCluster;
use crate::api::components::{ComponentPart, UNVERIFIED_TAINT};
use crate::api::condition::{ConditionType, Desired, Reason, find};
use crate::components::{Contested, Node, ObjectRef, SET_BACK, Taken};
use crate::domain::pod::{condition, is_leaving, last_line, text, unscheduled};

/// The most nodes that a message names.
const NAMED: usize = 10;

/// How long the controllers of the workload cluster get to process applied objects.
const APPLIED: Duration = Duration::from_secs(2);

/// Whether objects that were brought for this WindowsCluster may be left in the workload cluster.
pub fn may_be_there(object: &WindowsCluster) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    !object.parts().is_empty() || !object.objects().is_empty() || find(conditions, ConditionType::ComponentsReady).is_some()
}

/// The part of the Windows side that a DaemonSet forms. `pods` are the pods of all parts.
pub fn part(set: &Value, pods: &[&Value]) -> ComponentPart {
    let (name, status) = (text(set, "/metadata/name"), set.get("status").cloned().unwrap_or_default());
    let count = |key: &str| status.get(key).and_then(Value::as_i64).unwrap_or_default();
    let is_observed = status.get("observedGeneration") == set.pointer("/metadata/generation");
    let ready = if is_observed { count("updatedNumberScheduled").min(count("numberReady")) } else { 0 };
    let desired = count("desiredNumberScheduled");
    let is_its = |pod: &&&Value| part_of(pod) == name;
    let message = if ready < desired { pods.iter().filter(is_its).find_map(|pod| trouble(pod)) } else { None };
    ComponentPart { name: name.to_owned(), ready, desired, message }
}

/// A part that another program has to create, and has not created.
pub fn missing(set: &ObjectRef) -> ComponentPart {
    let message = format!("{set} is not there: `kubectl get tigerastatus` says what keeps Calico's operator");
    ComponentPart { name: set.name.clone(), message: Some(message), ..ComponentPart::default() }
}

/// Why a pod is not ready, as its kubelet or the scheduler reports it.
fn trouble(pod: &Value) -> Option<String> {
    let words = |state: &Value| {
        let state = state.as_object()?.values().next()?;
        let last = Some(last_line(text(state, "/message"))).filter(|line| !line.is_empty());
        Some(last.unwrap_or_else(|| text(state, "/reason")).trim_start_matches("capw-node: ").to_owned()).filter(|words| !words.is_empty())
    };
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let container = statuses.and_then(|statuses| statuses.iter().find(|status| status.get("ready") != Some(&Value::Bool(true))));
    let ended = container.and_then(|status| words(status.get("lastState")?));
    let waits = || container.filter(|status| status.pointer("/state/running").is_none()).and_then(|status| words(status.get("state")?));
    let why = ended.or_else(waits).or_else(|| unscheduled(pod).map(str::to_owned))?;
    let node = text(pod, "/spec/nodeName");
    let place = if node.is_empty() { String::new() } else { format!(" on {node}") };
    Some(format!("pod {}{place}: {why}", text(pod, "/metadata/name")))
}

/// The Windows nodes that have a working network.
#[derive(Debug, PartialEq, Eq)]
pub struct Verification {
    /// The number of Windows nodes on which a pod of each part is ready, and of all Windows nodes.
    pub verified: usize,
    pub nodes: usize,
    /// Verified nodes that still have the taint.
    pub tainted: Vec<String>,
}

/// A node is verified when its pod of each part is ready. kube-proxy's pod is ready when it has programmed the Services, and it starts only in the
/// network that flanneld or Calico has set up. With Calico, routes to other nodes exist once Calico's pod is ready too: its Felix sets them.
pub fn verify(nodes: &[Node], parts: &[ComponentPart], pods: &[&Value]) -> Verification {
    let ready: HashSet<(&str, &str)> = pods.iter().filter(|pod| is_ready(pod)).map(|pod| (text(pod, "/spec/nodeName"), part_of(pod))).collect();
    let windows: Vec<&Node> = nodes.iter().filter(|node| node.windows).collect();
    let has_all = |node: &&Node| !parts.is_empty() && parts.iter().all(|part| ready.contains(&(node.object.name.as_str(), part.name.as_str())));
    let verified: Vec<&Node> = windows.iter().copied().filter(has_all).collect();
    Verification { verified: verified.len(), nodes: windows.len(), tainted: tainted(verified) }
}

/// The names of the nodes that have the taint.
pub fn tainted<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<String> {
    let has_taint = |node: &&Node| node.taints.iter().any(|key| key == UNVERIFIED_TAINT);
    nodes.into_iter().filter(has_taint).map(|node| node.object.name.clone()).collect()
}

/// The name of the part that a pod belongs to.
fn part_of(pod: &Value) -> &str {
    text(pod, "/metadata/labels/app.kubernetes.io~1name")
}

fn is_ready(pod: &Value) -> bool {
    !is_leaving(pod) && condition(pod, "Ready", "True").is_some()
}

/// With `mode: Report`, nodes keep the taint until a person removes it. `None` if no node has it.
pub fn taint_not_removed(nodes: &[Node]) -> Option<Desired> {
    let tainted = tainted(nodes);
    let named = tainted.get(..NAMED).unwrap_or(&tainted);
    let more = match tainted.len() - named.len() {
        0 if named.is_empty() => return None,
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why =
        format!("no pods come to {}{more}: the taint {UNVERIFIED_TAINT} is on them, and with mode: Report CAPW leaves it there", named.join(", "));
    let command = format!("kubectl taint nodes {} {UNVERIFIED_TAINT}-", named.join(" "));
    let message = format!("{why}. Once their network works: `{command}`; or set mode to Auto, or to Off");
    Some(Desired::no(ConditionType::ComponentsReady, Reason::TaintNotRemoved, message))
}

/// The merge patch that removes the taint from a Node; `None` if the Node does not have it.
pub fn without_taint(node: &v1::Node) -> Option<Value> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    let left: Vec<_> = taints.iter().filter(|taint| taint.key != UNVERIFIED_TAINT).collect();
    (left.len() < taints.len()).then(|| json!({"spec": {"taints": left}}))
}

/// The condition, and when to check the cluster again: a change of a DaemonSet's status alone triggers no pass.
pub fn report(parts: &[ComponentPart]) -> (Desired, Duration) {
    let lacking: Vec<String> = parts.iter().filter(|part| part.ready < part.desired || part.message.is_some()).map(lack).collect();
    if lacking.is_empty() {
        return (Desired::yes(ConditionType::ComponentsReady, Reason::PartsReady), RECHECK);
    }
    (Desired::no(ConditionType::ComponentsReady, Reason::PartNotReady, lacking.join("; ")), RECHECK_SOON)
}

/// The condition before objects are applied, which happens as soon as it is stored.
pub fn announced(objects: usize) -> (Desired, Duration) {
    let message = format!("{objects} objects are to be applied to the workload cluster");
    (Desired::no(ConditionType::ComponentsReady, Reason::PartNotReady, message), Duration::ZERO)
}

/// The condition after objects were applied: their effect is not known yet.
pub fn applied(objects: usize) -> (Desired, Duration) {
    let message = format!("{objects} objects in the workload cluster were applied just now");
    (Desired::no(ConditionType::ComponentsReady, Reason::PartNotReady, message), APPLIED)
}

/// The condition if other writers change what CAPW has applied; `None` if none does.
pub fn contested(fields: &[Contested]) -> Option<(Desired, Duration)> {
    let named = fields.get(..NAMED).unwrap_or(fields);
    let more = match fields.len() - named.len() {
        0 if named.is_empty() => return None,
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let each = |Contested { object, field, manager }: &Contested| format!("{object}, {field}: the field manager {manager} has set something else");
    let limit = SET_BACK.as_secs();
    let remedy =
        format!("CAPW sets it back, at most once in {limit} s: if it comes again, end what writes it, or set spec.components.mode to Report");
    let message = format!("{}{more}. {remedy}", named.iter().map(each).collect::<Vec<_>>().join("; "));
    Some((Desired::no(ConditionType::ComponentsReady, Reason::FieldManagerConflict, message), SET_BACK))
}

fn lack(part: &ComponentPart) -> String {
    let why = part.message.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}: {} of {} pods are ready{why}", part.name, part.ready, part.desired)
}

/// The condition when the objects for pods are as desired, except objects that must not be touched, and kinds that the API server does not have.
pub fn kept(taken: &[Taken], unserved: &BTreeSet<&str>) -> (Desired, Duration) {
    let lacks =
        |kind: &&str| format!("the API server does not have the kind {kind}: upgrade it, or switch off what needs it in spec.components.policies");
    let why: Vec<String> = taken.iter().map(ToString::to_string).chain(unserved.iter().map(lacks)).collect();
    if why.is_empty() {
        return report(&[]);
    }
    not_deployed(if taken.is_empty() { Reason::NotDeployed } else { Reason::NameTaken }, why.join("; "))
}

/// Merges the reports about the network and about the objects for pods: if neither is as desired, the message has both reasons.
pub fn both(network: (Desired, Duration), for_pods: (Desired, Duration)) -> (Desired, Duration) {
    let ((network, one), (for_pods, other)) = (network, for_pods);
    let condition = match (network.status, for_pods.status) {
        (Some(true), _) => for_pods,
        (_, Some(true)) => network,
        _ => Desired { message: format!("{}; {}", network.message, for_pods.message), ..network },
    };
    (condition, one.min(other))
}

/// The condition when there is nothing to bring, or it must not be brought.
pub fn not_deployed(reason: Reason, message: String) -> (Desired, Duration) {
    (Desired::no(ConditionType::ComponentsReady, reason, message), RECHECK)
}

/// The condition while the removal is not complete.
pub fn not_removed(reason: Reason, why: &str) -> (Desired, Duration) {
    let message = format!("what CAPW brought to Windows nodes is not removed yet: {why}");
    (Desired::no(ConditionType::ComponentsReady, reason, message), RECHECK_SOON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(generation: i64, desired: i64, updated: i64, ready: i64) -> Value {
        json!({"metadata": {"name": "flannel", "generation": 2}, "status": {"observedGeneration": generation, "desiredNumberScheduled": desired,
            "updatedNumberScheduled": updated, "numberReady": ready}})
    }

    fn pod(status: Value) -> Value {
        json!({"metadata": {"name": "flannel-x", "labels": {"app.kubernetes.io/name": "flannel"}}, "spec": {"nodeName": "win-1"}, "status": status})
    }

    #[test]
    fn a_part_is_ready_where_its_pods_are_new_and_ready() {
        for (set, ready, desired) in [
            (set(2, 2, 2, 2), 2, 2),
            (set(2, 2, 1, 2), 1, 2),
            (set(2, 2, 2, 1), 1, 2),
            (set(1, 2, 2, 2), 0, 2),
            (set(2, 0, 0, 0), 0, 0),
            (json!({"metadata": {"name": "flannel", "generation": 1}}), 0, 0),
        ] {
            let part = part(&set, &[]);
            assert_eq!((part.ready, part.desired), (ready, desired), "{set}");
            let (condition, _) = report(&[part]);
            assert_eq!(condition.status, Some(ready == desired), "{set}");
        }
    }

    #[test]
    fn a_node_is_verified_when_its_pod_of_each_part_is_ready() {
        let node = |name: &str, taints: &[&str]| {
            let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}}, "spec": {"taints": taints}})
        };
        let nodes = |node: &Value| crate::components::read(std::slice::from_ref(node)).nodes;
        let pod = |part: &str, node: &str, ready: &str| {
            json!({"metadata": {"name": "p", "labels": {"app.kubernetes.io/name": part}}, "spec": {"nodeName": node},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let part = |name: &str| ComponentPart { name: name.into(), ..ComponentPart::default() };
        let (parts, tainted, free) = ([part("flannel"), part("kube-proxy")], node("a", &["os", UNVERIFIED_TAINT]), node("a", &["os"]));
        let mut leaving = pod("kube-proxy", "a", "True");
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for (node, pods, verified, lifted) in [
            (&tainted, vec![pod("flannel", "a", "True"), pod("kube-proxy", "a", "True")], 1, 1),
            (&free, vec![pod("flannel", "a", "True"), pod("kube-proxy", "a", "True")], 1, 0),
            (&tainted, vec![pod("flannel", "a", "True"), pod("kube-proxy", "a", "False")], 0, 0),
            (&tainted, vec![pod("flannel", "a", "True"), pod("kube-proxy", "b", "True")], 0, 0),
            (&tainted, vec![pod("flannel", "a", "True"), leaving], 0, 0),
            (&tainted, vec![pod("kube-proxy", "a", "True")], 0, 0),
            (&tainted, vec![], 0, 0),
        ] {
            let found = verify(&nodes(node), &parts, &pods.iter().collect::<Vec<_>>());
            assert_eq!((found.verified, found.nodes, found.tainted.len()), (verified, 1, lifted), "{pods:?}");
        }
        assert_eq!(verify(&nodes(&tainted), &[], &[]).verified, 0, "nothing shows that it works");
        let read = |node: &Value| -> v1::Node { serde_json::from_value(node.clone()).unwrap() };
        assert_eq!(without_taint(&read(&tainted)).unwrap()["spec"]["taints"], json!([{"key": "os", "effect": "NoSchedule"}]));
        assert_eq!(without_taint(&read(&free)), None);
    }

    #[test]
    fn a_taint_that_nothing_takes_away_is_said_with_the_command_that_does() {
        let node = |at: usize, key: &str| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("win-{at}"), "labels": {"kubernetes.io/os": "windows"}},
                "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})
        };
        let nodes = |count: usize| -> Vec<Node> {
            let tainted = (1..=count).map(|at| node(at, UNVERIFIED_TAINT));
            crate::components::read(&tainted.chain([node(99, "os")]).collect::<Vec<_>>()).nodes
        };
        assert_eq!(taint_not_removed(&nodes(0)), None);
        for (count, command, more) in [
            (1, format!("`kubectl taint nodes win-1 {UNVERIFIED_TAINT}-`"), ""),
            (2, format!("`kubectl taint nodes win-1 win-2 {UNVERIFIED_TAINT}-`"), ""),
            (1000, format!(" win-9 win-10 {UNVERIFIED_TAINT}-`"), "win-10 and 990 more: "),
        ] {
            let said = taint_not_removed(&nodes(count)).unwrap();
            assert_eq!((said.type_, said.status, said.reason), (ConditionType::ComponentsReady, Some(false), Reason::TaintNotRemoved));
            assert!(said.message.contains(&command) && said.message.contains(more), "{}", said.message);
            assert!(!said.message.contains("win-99 "), "{}", said.message);
        }
    }

    #[test]
    fn what_keeps_a_pod_is_said_in_its_own_words() {
        let log = "I1126 flanneld starts\ncapw-node: C:\\k\\flanneld.exe is missing: name it in spec.programs.downloads\n";
        for (status, expected) in [
            (
                json!({"containerStatuses": [{"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                    "lastState": {"terminated": {"reason": "Error", "message": log}}}]}),
                Some("pod flannel-x on win-1: C:\\k\\flanneld.exe is missing: name it in spec.programs.downloads"),
            ),
            (
                json!({"containerStatuses": [{"ready": false, "lastState": {}, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}),
                Some("pod flannel-x on win-1: no such image"),
            ),
            (json!({"containerStatuses": [{"ready": false, "lastState": {}, "state": {"running": {"startedAt": "x"}}}]}), None),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
                Some("pod flannel-x on win-1: 0/3 nodes are available"),
            ),
            (json!({}), None),
        ] {
            assert_eq!(trouble(&pod(status.clone())).as_deref(), expected, "{status}");
        }
        let (condition, after) = report(&[part(&set(2, 1, 1, 0), &[&pod(json!({"containerStatuses": [{"state": {"waiting": {"reason": "A"}}}]}))])]);
        assert_eq!((condition.reason, after), (Reason::PartNotReady, RECHECK_SOON));
        assert_eq!(condition.message, "flannel: 0 of 1 pods are ready (pod flannel-x on win-1: A)");
        // The part is requested before the first Windows node exists.
        let (condition, after) = report(&[missing(&ObjectRef::new("DaemonSet", Some("calico-system"), "calico-node-windows"))]);
        assert_eq!((condition.reason, after), (Reason::PartNotReady, RECHECK_SOON));
        assert!(condition.message.contains("DaemonSet calico-system/calico-node-windows is not there"), "{}", condition.message);
    }
}
