//! Finds the other writers of an object that CAPW applies, in the object's `managedFields`, which the API server maintains.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::place::ObjectRef;

/// The shortest time between two reverts: CAPW reverts another writer's changes in an object only once within this time.
pub const SET_BACK: Duration = Duration::from_secs(10);

/// A field of CAPW's object that another writer has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contested {
    pub object: ObjectRef,
    pub field: String,
    /// The field manager of the other writer.
    pub manager: String,
}

/// Returns the field manager that wrote into an object last, at the same second as `ours` or later. Controllers that write its status do not
/// count.
pub fn writer_since<'a>(live: &'a Value, ours: &str) -> Option<&'a str> {
    let since = written(live, ours)?;
    let later = entries(live).filter(|(name, at)| *name != ours && *at >= since);
    later.max_by_key(|(_, at)| *at).map(|(name, _)| name)
}

/// Whether `ours` wrote into an object so recently that another writer's later change is not reverted yet.
pub fn is_set_back_later(live: &Value, ours: &str, now: Timestamp) -> bool {
    // Either of two clocks may be ahead.
    let is_lately = |at: Timestamp| now.duration_since(at).unsigned_abs() < SET_BACK;
    writer_since(live, ours).is_some() && written(live, ours).is_some_and(is_lately)
}

/// The time of a field manager's last write into an object.
fn written(live: &Value, manager: &str) -> Option<Timestamp> {
    entries(live).filter(|(name, _)| *name == manager).map(|(_, at)| at).max()
}

fn entries(live: &Value) -> impl Iterator<Item = (&str, Timestamp)> {
    let all = live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let of_object = all.filter(|entry| entry.get("subresource").and_then(Value::as_str).is_none_or(str::is_empty));
    of_object.filter_map(|entry| Some((entry.get("manager")?.as_str()?, entry.get("time")?.as_str()?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_writer_is_named_and_waits_for_ten_seconds() {
        let entry = |manager: &str, second: u32| json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:00:{second:02}Z")});
        let status =
            |second: u32| json!({"manager": "kube-controller-manager", "subresource": "status", "time": format!("2026-01-01T00:00:{second:02}Z")});
        for (fields, second, writer, is_later) in [
            (json!(null), 30, None, false),
            (json!([entry("capw", 20)]), 21, None, false),
            (json!([entry("capw", 20), status(21)]), 21, None, false),
            (json!([entry("kubectl-edit", 10), entry("capw", 20)]), 21, None, false),
            (json!([entry("capw", 20), entry("kubectl-edit", 20)]), 21, Some("kubectl-edit"), true),
            (json!([entry("capw", 20), entry("flux", 25), entry("kubectl-edit", 24)]), 29, Some("flux"), true),
            (json!([entry("capw", 20), entry("flux", 25)]), 30, Some("flux"), false),
            (json!([entry("flux", 25)]), 26, None, false),
        ] {
            let live = json!({"metadata": {"managedFields": fields}});
            let now = format!("2026-01-01T00:00:{second:02}Z").parse().unwrap();
            assert_eq!((writer_since(&live, "capw"), is_set_back_later(&live, "capw", now)), (writer, is_later), "{live}");
        }
    }
}
