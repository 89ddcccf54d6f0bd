//! WindowsCluster: decides which hypervisors its machines may use (`docs/design/cluster-api.md#infrastructure-cluster`).

use super::ending::is_ending;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::ending::{End, end};
use super::windows_side::may_be_there;
use crate::api::cluster::{FINALIZER, FailureDomain, WindowsCluster};
use crate::api::cluster_ref::ClusterRef;
use crate::api::components::ComponentsMode;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::domain::decision::Decision;
use crate::domain::gate::{has_finalizer, paused, paused_condition};
use crate::domain::owner::TargetCluster;
use crate::kinds::machine::decide::step::Reach;

/// The interval between two passes while machines keep a WindowsCluster that is to be deleted.
const LEAVING: Duration = Duration::from_secs(10);

/// The WindowsCluster, of all in the namespace, that represents the cluster of standalone pools. If several name the cluster, the oldest one counts;
/// if they were created in the same second, the first by name.
pub fn of_standalone<T: Borrow<WindowsCluster>>(cluster: &ClusterRef, all: impl IntoIterator<Item = T>) -> Option<T> {
    let its = all.into_iter().filter(|object| ClusterRef::of_windows_cluster(object.borrow()).as_ref() == Some(cluster));
    its.min_by_key(|object| {
        let meta = &object.borrow().metadata;
        (meta.creation_timestamp.clone(), meta.name.clone())
    })
}

/// The input of a decision.
pub struct ObservedWindowsCluster<'a> {
    pub object: &'a WindowsCluster,
    /// The cluster that the object represents. `None` if its Cluster does not exist.
    pub cluster: Option<&'a TargetCluster>,
    /// WindowsMachines of that cluster.
    pub machines: usize,
    /// Names of the WindowsHypervisors in the namespace.
    pub hypervisors: Vec<String>,
    pub reach: &'a (dyn Fn(&str) -> Reach + Sync),
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum WindowsClusterStep {
    Ignore,
    /// The object is paused.
    Wait,
    /// Store the finalizer: objects are to be brought to the workload cluster.
    Adopt,
    /// Report these failure domains, and reconcile `spec.components`.
    Reconcile(Vec<FailureDomain>),
    /// Remove the objects that CAPW brought to the workload cluster: the Cluster is being deleted, and the last machine is deleted.
    TakeAway,
    /// Report for this reason what is left behind in the workload cluster, and release the object.
    LeaveBehind(String),
    /// Remove the finalizer: the workload cluster holds none of our objects, or is deleted as a whole.
    Release,
}

pub fn decide(s: &ObservedWindowsCluster<'_>) -> Decision<WindowsClusterStep> {
    let (meta, ours) = (&s.object.metadata, has_finalizer(&s.object.metadata, FINALIZER));
    let deleting = meta.deletion_timestamp.is_some();
    if deleting && !ours {
        return Decision::new(WindowsClusterStep::Ignore);
    }
    if let Some(why) = paused(meta, s.cluster.and_then(TargetCluster::paused_name).as_deref()) {
        return Decision::new(WindowsClusterStep::Wait).with_condition(paused_condition(Some(why)));
    }
    if s.cluster.is_none() && !deleting {
        // A Cluster that does not exist (yet) may be paused.
        return Decision::new(WindowsClusterStep::Ignore);
    }
    if s.machines == 0 && is_ending(s.object, s.cluster) {
        return Decision::new(match end(s.object, s.cluster) {
            _ if !ours => WindowsClusterStep::Ignore,
            End::Release => WindowsClusterStep::Release,
            End::TakeAway => WindowsClusterStep::TakeAway,
            End::LeaveBehind(why) => WindowsClusterStep::LeaveBehind(why),
        });
    }
    let is_asked = s.object.components_mode() == ComponentsMode::Auto;
    match (is_asked || may_be_there(s.object), ours) {
        (true, false) => Decision::new(WindowsClusterStep::Adopt),
        (false, true) => Decision::new(WindowsClusterStep::Release),
        _ => serve(s),
    }
}

/// Reconciles the object. Its machines need the components even while the object is being deleted.
fn serve(s: &ObservedWindowsCluster<'_>) -> Decision<WindowsClusterStep> {
    let named: Vec<String> = s.object.spec.hypervisors.iter().map(|h| h.name.clone()).collect();
    let mut names = if named.is_empty() { s.hypervisors.clone() } else { named };
    names.sort();
    let domain = |name: &String| FailureDomain { name: name.clone(), control_plane: Some(false), attributes: BTreeMap::new() };
    let domains = names.iter().map(domain).collect();
    // The cluster stays ready without a hypervisor: its nodes work without CAPW. The Cluster would repeat a message here in its
    // Available, which should be empty while all is well.
    let mut decision = Decision::new(WindowsClusterStep::Reconcile(domains))
        .with_condition(Desired::yes(ConditionType::Ready, Reason::Provisioned))
        .with_condition(hypervisors(s, &names));
    if is_ending(s.object, s.cluster) {
        // Nothing triggers a pass when the last machine was unreadable.
        decision = decision.requeue_after(LEAVING);
    }
    if s.object.metadata.deletion_timestamp.is_none() {
        return decision;
    }
    let remedy = if s.cluster.is_some_and(|target| target.cluster.is_standalone()) { "delete their pools" } else { "delete them, or the Cluster" };
    let message = format!("{} Windows machines of the cluster need what CAPW brought for them: {remedy}", s.machines);
    decision.with_condition(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message))
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
    use crate::api::capi::Cluster;
    use serde_json::{Value, json};

    fn object(spec: Value) -> WindowsCluster {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsCluster",
            "metadata": {"name": "c1", "namespace": "lab"}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn of_several_for_one_standalone_cluster_the_oldest_counts() {
        let object = |name: &str, secret: &str, second: u32| -> WindowsCluster {
            let mut object = object(json!({"cluster": {"kubeconfigSecretRef": {"name": secret}}}));
            object.metadata.name = Some(name.to_owned());
            object.metadata.creation_timestamp = serde_json::from_value(json!(format!("2026-01-01T00:00:0{second}Z"))).unwrap();
            object
        };
        let all = [object("c", "another", 0), object("b", "kubeconfig", 2), object("z", "kubeconfig", 1), object("a", "kubeconfig", 1)];
        let cluster = ClusterRef::of_windows_cluster(&all[1]).unwrap();
        assert_eq!(of_standalone(&cluster, &all).unwrap().metadata.name.as_deref(), Some("a"));
        assert_eq!(of_standalone(&cluster, &all[..1]), None);
    }

    fn cluster() -> TargetCluster {
        let cluster =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "lab"}, "spec": {}});
        TargetCluster::of_cluster(&serde_json::from_value::<Cluster>(cluster).unwrap(), None)
    }

    fn decided(spec: Value, hypervisors: &[&str], reach: Reach) -> (Vec<String>, String) {
        let known = |_: &str| reach.clone();
        let hypervisors = hypervisors.iter().map(|&name| name.to_owned()).collect();
        let decision = decide(&ObservedWindowsCluster { object: &object(spec), cluster: Some(&cluster()), machines: 0, hypervisors, reach: &known });
        let [ready, hypervisors] = &decision.conditions[..] else { panic!("{decision:?}") };
        assert_eq!((ready.status, ready.message.as_str()), (Some(true), ""), "the Cluster would repeat a message");
        assert_eq!(hypervisors.status == Some(true), hypervisors.message.is_empty());
        let WindowsClusterStep::Reconcile(domains) = &decision.step else { panic!("{decision:?}") };
        (domains.iter().map(|d| d.name.clone()).collect(), hypervisors.message.clone())
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
