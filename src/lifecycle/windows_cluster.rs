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
    // A missing hypervisor does not make the cluster unready: its nodes work without us. A message would be repeated by the Cluster, whose
    // Available has nothing to say while all is well.
    Decision::new(Some(domains)).say(Desired::yes(ConditionType::Ready, Reason::Provisioned)).say(hypervisors(s, &names))
}

fn hypervisors(s: &ObservedWindowsCluster<'_>, names: &[String]) -> Desired {
    let no = |why, message| Desired::no(ConditionType::HypervisorsReachable, why, message);
    if names.is_empty() {
        return no(Reason::HypervisorMissing, "there is no WindowsHypervisor in this namespace yet: machines will wait for one".to_owned());
    }
    let missing = names
        .iter()
        .filter(|name| (s.reach)(name) == Reach::Missing)
        .map(|name| format!("WindowsHypervisor {name} does not exist in this namespace"));
    let unreachable =
        names.iter().filter(|name| matches!((s.reach)(name), Reach::Unreachable(_))).map(|name| format!("WindowsHypervisor {name} is unreachable"));
    let (missing, unreachable): (Vec<String>, Vec<String>) = (missing.collect(), unreachable.collect());
    let why = if missing.is_empty() { Reason::HypervisorUnreachable } else { Reason::HypervisorMissing };
    match [missing, unreachable].concat() {
        problems if problems.is_empty() => Desired::yes(ConditionType::HypervisorsReachable, Reason::Reachable),
        problems => no(why, problems.join("; ")),
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
        let [ready, hypervisors] = &decision.conditions[..] else { panic!("{decision:?}") };
        assert_eq!((ready.status, ready.message.as_str()), (Some(true), ""), "the Cluster would repeat a message");
        assert_eq!(hypervisors.status == Some(true), hypervisors.message.is_empty());
        (decision.step.unwrap().into_iter().map(|d| d.name).collect(), hypervisors.message.clone())
    }

    #[test]
    fn the_hypervisors_that_it_names_else_those_of_the_namespace() {
        let named = json!({"hypervisors": [{"name": "b"}, {"name": "a"}]});
        for (spec, there, reach, names, message) in [
            (json!({}), vec![], Reach::Reachable, vec![], "there is no WindowsHypervisor in this namespace yet"),
            (json!({}), vec!["x"], Reach::Unchecked, vec!["x"], ""),
            (named.clone(), vec!["x"], Reach::Reachable, vec!["a", "b"], ""),
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
