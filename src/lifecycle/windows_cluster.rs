//! WindowsCluster: which hypervisors its machines may use (`docs/design/cluster-api.md#infrastructure-cluster`).

use std::collections::BTreeMap;

use super::machine::Reach;
use super::{Decision, paused, paused_condition};
use crate::api::capi::Cluster;
use crate::api::cluster::{FailureDomain, WindowsCluster};
use crate::api::condition::{ConditionType, Desired, Reason};

/// What a decision depends on.
pub struct ObservedWindowsCluster<'a> {
    pub object: &'a WindowsCluster,
    pub cluster: Option<&'a Cluster>,
    /// Names of the WindowsHypervisors in the namespace.
    pub hypervisors: Vec<String>,
    pub reach: &'a (dyn Fn(&str) -> Reach + Sync),
}

/// The failure domains to report; `None` while it is paused.
pub fn decide(s: &ObservedWindowsCluster<'_>) -> Decision<Option<Vec<FailureDomain>>> {
    if let Some(why) = paused(&s.object.metadata, s.cluster.and_then(Cluster::paused_name)) {
        return Decision::new(None).say(paused_condition(Some(why)));
    }
    let named: Vec<String> = s.object.spec.hypervisors.iter().map(|h| h.name.clone()).collect();
    let mut names = if named.is_empty() { s.hypervisors.clone() } else { named };
    names.sort();
    let domain = |name: &String| FailureDomain { name: name.clone(), control_plane: Some(false), attributes: BTreeMap::new() };
    let domains = names.iter().map(domain).collect();
    // A missing hypervisor does not make the cluster unready: its nodes work without us.
    Decision::new(Some(domains)).say(Desired::yes(ConditionType::Ready, Reason::Provisioned).with_message(message(s, &names)))
}

fn message(s: &ObservedWindowsCluster<'_>, names: &[String]) -> String {
    let problems: Vec<String> = names
        .iter()
        .filter_map(|name| match (s.reach)(name) {
            Reach::Missing => Some(format!("WindowsHypervisor {name} does not exist in this namespace")),
            Reach::Unreachable(_) => Some(format!("WindowsHypervisor {name} is unreachable")),
            Reach::Unchecked | Reach::Reachable => None,
        })
        .collect();
    match (names.is_empty(), problems.is_empty()) {
        (true, _) => "there is no WindowsHypervisor in this namespace yet: machines will wait for one".to_owned(),
        (false, true) => format!("machines may use: {}", names.join(", ")),
        (false, false) => problems.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(spec: Value) -> WindowsCluster {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
            "metadata": {"name": "c1", "namespace": "lab"}, "spec": spec}))
        .unwrap()
    }

    fn decided(spec: Value, hypervisors: &[&str], reach: Reach) -> (Vec<String>, String) {
        let known = |_: &str| reach.clone();
        let hypervisors = hypervisors.iter().map(|&name| name.to_owned()).collect();
        let decision = decide(&ObservedWindowsCluster { object: &object(spec), cluster: None, hypervisors, reach: &known });
        (decision.step.unwrap().into_iter().map(|d| d.name).collect(), decision.conditions[0].message.clone())
    }

    #[test]
    fn the_hypervisors_that_it_names_else_those_of_the_namespace() {
        let named = json!({"hypervisors": [{"name": "b"}, {"name": "a"}]});
        for (spec, there, reach, names, message) in [
            (json!({}), vec![], Reach::Reachable, vec![], "there is no WindowsHypervisor in this namespace yet"),
            (json!({}), vec!["x"], Reach::Unchecked, vec!["x"], "machines may use: x"),
            (named.clone(), vec!["x"], Reach::Reachable, vec!["a", "b"], "machines may use: a, b"),
            (named.clone(), vec![], Reach::Missing, vec!["a", "b"], "WindowsHypervisor a does not exist in this namespace"),
            (
                named,
                vec![],
                Reach::Unreachable("cut".into()),
                vec!["a", "b"],
                "WindowsHypervisor a is unreachable; WindowsHypervisor b is unreachable",
            ),
        ] {
            let (found, text) = decided(spec, &there, reach);
            assert_eq!(found, names);
            assert!(text.starts_with(message), "{text}");
        }
    }
}
