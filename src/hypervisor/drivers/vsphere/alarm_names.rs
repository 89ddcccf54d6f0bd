//! The warning about the alarms of a VM, which calls the alarms by their names.

use std::collections::HashMap;

use tokio::sync::Mutex;

use super::client::Client;
use super::soap::Reference;

/// The names of alarms. Each name is read once.
#[derive(Default)]
pub struct AlarmNames(Mutex<HashMap<Reference, String>>);

impl AlarmNames {
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
