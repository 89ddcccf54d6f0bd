//! What a WindowsCluster says of the programs that CAPW brings to Windows nodes (`docs/pod-network.md`).

use std::time::Duration;

use serde_json::Value;

use super::network::{LOOK_AGAIN, LOOK_SOON};
use crate::api::components::ComponentPart;
use crate::api::condition::{ConditionType, Desired, Reason};

/// How long the controllers of the workload cluster get to take up what was applied.
const APPLIED: Duration = Duration::from_secs(2);

/// A part of the Windows side for each DaemonSet that was applied; the pods are those of all of them.
pub fn parts(daemon_sets: &[Value], pods: &[Value]) -> Vec<ComponentPart> {
    daemon_sets.iter().map(|set| part(set, pods)).collect()
}

fn part(set: &Value, pods: &[Value]) -> ComponentPart {
    let (name, status) = (text(set, "/metadata/name"), set.get("status").cloned().unwrap_or_default());
    let count = |key: &str| status.get(key).and_then(Value::as_i64).unwrap_or_default();
    let is_observed = status.get("observedGeneration") == set.pointer("/metadata/generation");
    let ready = if is_observed { count("updatedNumberScheduled").min(count("numberReady")) } else { 0 };
    let desired = count("desiredNumberScheduled");
    let is_its = |pod: &&Value| text(pod, "/metadata/labels/app.kubernetes.io~1name") == name;
    let message = if ready < desired { pods.iter().filter(is_its).find_map(trouble) } else { None };
    ComponentPart { name: name.to_owned(), ready, desired, message }
}

/// Why a pod is not ready, as its kubelet or the scheduler says it.
fn trouble(pod: &Value) -> Option<String> {
    let words = |state: &Value| {
        let state = state.as_object()?.values().next()?;
        // Of the end of its log, which the kubelet takes for the message, the last line says why it ended.
        let last = text(state, "/message").lines().rfind(|line| !line.trim().is_empty());
        Some(last.unwrap_or_else(|| text(state, "/reason")).trim_start_matches("capw-node: ").to_owned()).filter(|words| !words.is_empty())
    };
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let container = statuses.and_then(|statuses| statuses.iter().find(|status| status.get("ready") != Some(&Value::Bool(true))));
    let ended = container.and_then(|status| words(status.get("lastState")?));
    let waits = || container.filter(|status| status.pointer("/state/running").is_none()).and_then(|status| words(status.get("state")?));
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let refused = || {
        let scheduled = conditions?.iter().find(|condition| text(condition, "/type") == "PodScheduled" && text(condition, "/status") == "False")?;
        Some(text(scheduled, "/message").to_owned())
    };
    let why = ended.or_else(waits).or_else(refused)?;
    let node = text(pod, "/spec/nodeName");
    let place = if node.is_empty() { String::new() } else { format!(" on {node}") };
    Some(format!("pod {}{place}: {why}", text(pod, "/metadata/name")))
}

/// The condition, and when to look at the cluster again: the status of DaemonSets is not watched.
pub fn report(parts: &[ComponentPart]) -> (Desired, Duration) {
    let lacking: Vec<String> = parts.iter().filter(|part| part.ready < part.desired).map(lack).collect();
    if lacking.is_empty() {
        return (Desired::yes(ConditionType::ComponentsReady, Reason::PartsReady), LOOK_AGAIN);
    }
    (Desired::no(ConditionType::ComponentsReady, Reason::PartNotReady, lacking.join("; ")), LOOK_SOON)
}

/// Objects were applied just now: what comes of them is not known yet.
pub fn applied(objects: usize) -> (Desired, Duration) {
    let message = format!("{objects} objects in the workload cluster were applied just now");
    (Desired::no(ConditionType::ComponentsReady, Reason::PartNotReady, message), APPLIED)
}

fn lack(part: &ComponentPart) -> String {
    let why = part.message.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}: {} of {} pods are ready{why}", part.name, part.ready, part.desired)
}

/// There is nothing to bring, or it must not be.
pub fn not_brought(reason: Reason, message: String) -> (Desired, Duration) {
    (Desired::no(ConditionType::ComponentsReady, reason, message), LOOK_AGAIN)
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let (condition, after) = report(&parts(&[set(2, 1, 1, 0)], &[pod(json!({"containerStatuses": [{"state": {"waiting": {"reason": "A"}}}]}))]));
        assert_eq!((condition.reason, after), (Reason::PartNotReady, LOOK_SOON));
        assert_eq!(condition.message, "flannel: 0 of 1 pods are ready (pod flannel-x on win-1: A)");
    }
}
