//! The phase of a machine on its way to a Node, for metrics and `capw status`. The conditions explain why the machine is not further.

use jiff::{SignedDuration, Timestamp};

use crate::api::condition::{self, ConditionType};
use crate::api::machine::WindowsMachine;

/// A phase of a machine's life. The phases follow one another, and any phase may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The VM does not run yet.
    Provisioning,
    /// The VM runs, and its Node has not appeared yet.
    Joining,
    /// The Node has appeared.
    Joined,
    Removing,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::Provisioning, Self::Joining, Self::Joined, Self::Removing];

    /// The value of the metric label `phase`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Joining => "joining",
            Self::Joined => "joined",
            Self::Removing => "removing",
        }
    }

    /// How long a machine may be in this phase. The alert CapwMachineStuck has the same limits.
    pub const fn limit(self) -> SignedDuration {
        match self {
            Self::Provisioning => SignedDuration::from_hours(1),
            Self::Joining | Self::Removing => SignedDuration::from_hours(2),
            Self::Joined => SignedDuration::MAX,
        }
    }
}

/// The phase of a machine, and since when; `None` for an object that the API server has not stored.
pub fn phase(object: &WindowsMachine) -> Option<(Phase, Timestamp)> {
    if let Some(deleted) = &object.metadata.deletion_timestamp {
        return Some((Phase::Removing, deleted.0));
    }
    let created = object.metadata.creation_timestamp.as_ref()?.0;
    let Some(status) = &object.status else { return Some((Phase::Provisioning, created)) };
    let joined = condition::find(&status.conditions, ConditionType::NodeJoined).filter(|joined| joined.status == "True");
    Some(match (joined, &status.powered_on_at) {
        (Some(joined), _) => (Phase::Joined, joined.last_transition_time.0),
        (None, Some(powered_on)) => (Phase::Joining, powered_on.0),
        (None, None) => (Phase::Provisioning, created),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(metadata: Value, status: Value) -> Option<(Phase, String)> {
        let mut object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "metadata": {"name": "a"},
            "spec": {"image": "windows-server-2022", "cpus": 4, "memory": "8Gi"}, "status": status});
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        phase(&serde_json::from_value(object).unwrap()).map(|(phase, since)| (phase, since.to_string()))
    }

    #[test]
    fn the_alert_has_the_limits() {
        let rules =
            std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/components/monitoring/rules.yaml")).unwrap();
        for (phases, phase) in [("=\"provisioning\"", Phase::Provisioning), ("=~\"joining|removing\"", Phase::Joining)] {
            let wanted = format!("capw_machine_oldest_seconds{{phase{phases}}} > {}", phase.limit().as_secs());
            assert!(rules.contains(&wanted), "config/components/monitoring/rules.yaml: {wanted}");
        }
    }

    #[test]
    fn a_phase_begins_with_what_the_object_says() {
        let at = |hour: u8| format!("2026-01-01T0{hour}:00:00Z");
        let made = json!({"creationTimestamp": at(0)});
        let joined = |status: &str| {
            json!({"poweredOnAt": at(1), "conditions": [{"type": "NodeJoined", "status": status, "reason": "Joined", "message": "",
                "lastTransitionTime": at(2)}]})
        };
        assert_eq!(of(json!({}), json!({"conditions": []})), None);
        assert_eq!(of(made.clone(), json!({"conditions": []})), Some((Phase::Provisioning, at(0))));
        assert_eq!(of(made.clone(), json!({"poweredOnAt": at(1), "conditions": []})), Some((Phase::Joining, at(1))));
        assert_eq!(of(made.clone(), joined("False")), Some((Phase::Joining, at(1))));
        assert_eq!(of(made, joined("True")), Some((Phase::Joined, at(2))));
        let deleted = json!({"creationTimestamp": at(0), "deletionTimestamp": at(3)});
        assert_eq!(of(deleted, joined("True")), Some((Phase::Removing, at(3))));
    }
}
