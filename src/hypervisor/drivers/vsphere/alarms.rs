//! The alarms of a vCenter that become a warning: the red alarms of a VM that nobody has acknowledged. A VM with such an alarm runs: a red
//! processor alarm is usual while Windows is installed.

use roxmltree::Node;

use super::soap::{Reference, child, children, text_at};

/// The property of a VM that lists its alarms.
pub const PATH: &str = "triggeredAlarmState";

/// Returns the alarms among these states that need a person's attention.
pub fn raised(states: Node) -> Vec<Reference> {
    let is_raised = |state: &Node| text_at(*state, &["overallStatus"]) == Some("red") && text_at(*state, &["acknowledged"]) != Some("true");
    let mut alarms: Vec<Reference> =
        children(states, "AlarmState").filter(is_raised).filter_map(|state| child(state, "alarm").and_then(Reference::of)).collect();
    alarms.sort();
    alarms.dedup();
    alarms
}
