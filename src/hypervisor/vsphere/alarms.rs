//! The alarms of a vCenter that become a warning: the red alarms of a VM that nobody has acknowledged. A VM with such an alarm runs: a red
//! processor alarm is usual while Windows is installed.

use std::collections::HashMap;

use roxmltree::Node;
use tokio::sync::Mutex;

use super::client::Client;
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

/// The names of alarms. Each name is read once.
#[derive(Default)]
pub struct Names(Mutex<HashMap<Reference, String>>);

impl Names {
    /// The warning about these alarms; `None` without alarms.
    pub async fn warning(&self, client: &Client, alarms: &[Reference]) -> Option<String> {
        let mut named = Vec::new();
        for alarm in alarms {
            named.push(format!("\"{}\"", self.of(client, alarm).await));
        }
        let (noun, it) = if named.len() == 1 { ("alarm", "it") } else { ("alarms", "them") };
        (!named.is_empty()).then(|| format!("the vCenter shows the {noun} {}: acknowledge {it} there when that is expected", named.join(", ")))
    }

    /// The name of an alarm, or its id if the name may not be read.
    async fn of(&self, client: &Client, alarm: &Reference) -> String {
        let mut names = self.0.lock().await;
        if let Some(name) = names.get(alarm) {
            return name.clone();
        }
        let read = client.of_one(alarm, "Alarm", &["info.name".to_owned()], |alarm| alarm.text("info.name").map(str::to_owned)).await;
        let name = read.ok().flatten().unwrap_or_else(|| alarm.id.clone());
        names.insert(alarm.clone(), name.clone());
        name
    }
}
