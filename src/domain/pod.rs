//! The facts in a pod of a workload cluster, as it was read.

use serde_json::Value;

pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn is_leaving(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

/// Returns the condition of this type, if it has this status.
pub fn condition<'v>(pod: &'v Value, type_: &str, status: &str) -> Option<&'v Value> {
    let mut conditions = pod.pointer("/status/conditions")?.as_array()?.iter();
    conditions.find(|condition| text(condition, "/type") == type_ && text(condition, "/status") == status)
}

/// Returns why the scheduler does not bind the pod, if it does not.
pub fn unscheduled(pod: &Value) -> Option<&str> {
    condition(pod, "PodScheduled", "False").map(|condition| text(condition, "/message"))
}

/// Returns the line that explains why a container ended, from the end of a log that the kubelet uses as its message; empty if none exists.
pub fn last_line(message: &str) -> &str {
    message.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default()
}
