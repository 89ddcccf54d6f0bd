//! The Nodes of the machines of standalone pools, as the watches of their clusters have reported them. No pass reads a Node only to learn what has
//! changed.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::watch_task::WatchTask;
use crate::api::cluster_ref::ClusterRef;
use crate::api::name::ProviderId;
use crate::domain::identity::NodeIdentity;
use crate::domain::owner::is_ready;
use crate::kube_api::workload::{Workload, WorkloadError};

/// The Nodes that the watches have reported, by workload cluster.
#[derive(Default)]
pub struct Nodes(Mutex<HashMap<ClusterRef, Followed>>);

#[derive(Default)]
struct Followed {
    watch: WatchTask,
    /// Whether all Nodes were listed once.
    known: bool,
    by_name: HashMap<String, Arc<Node>>,
    /// When each Node was first observed not Ready, by our own clock.
    unready: HashMap<String, Timestamp>,
    /// A new listing that is not complete yet.
    begun: Option<HashMap<String, Arc<Node>>>,
    /// Why the watch currently fails.
    failure: Option<WorkloadError>,
}

impl Nodes {
    /// Whether all Nodes of the cluster have been listed, so that a missing Node does not exist.
    pub fn are_known(&self, cluster: &ClusterRef) -> bool {
        self.0.lock().get(cluster).is_some_and(|f| f.known)
    }

    /// Whether all Nodes of the cluster have been listed. An error if they cannot be listed, or if the cluster no longer lets CAPW observe them.
    pub fn listed(&self, cluster: &ClusterRef) -> Result<bool, WorkloadError> {
        let all = self.0.lock();
        let Some(followed) = all.get(cluster) else { return Ok(false) };
        match &followed.failure {
            Some(error) if !followed.known || error.is_lasting() => Err(error.clone()),
            _ => Ok(followed.known),
        }
    }

    /// Returns the Node of a machine.
    pub fn of(&self, cluster: &ClusterRef, machine: &NodeIdentity) -> Option<Arc<Node>> {
        self.0.lock().get(cluster)?.by_name.get(machine.name.as_str()).filter(|node| machine.is_of(node)).cloned()
    }

    /// Returns when the Node of a machine was first observed not Ready, by the clock of this process.
    pub fn unready_since(&self, cluster: &ClusterRef, machine: &NodeIdentity) -> Option<Timestamp> {
        self.0.lock().get(cluster)?.unready.get(machine.name.as_str()).copied()
    }

    /// Watches a cluster, unless a watch with this kubeconfig runs already.
    pub(super) fn watch(&self, cluster: &ClusterRef, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        // With another kubeconfig, the known Nodes are kept until the new ones are listed.
        self.0.lock().entry(cluster.clone()).or_default().watch.start(workload, spawn);
    }

    pub(super) fn forget(&self, cluster: &ClusterRef) {
        self.0.lock().remove(cluster);
    }

    pub(super) fn fail(&self, cluster: &ClusterRef, error: &WorkloadError) {
        if let Some(followed) = self.0.lock().get_mut(cluster) {
            followed.failure = Some(error.clone());
        }
    }

    /// Stores an event of the watch; returns the names of the Nodes that have changed.
    pub(super) fn note(&self, cluster: &ClusterRef, event: Event<Node>, now: Timestamp) -> Vec<String> {
        let mut all = self.0.lock();
        let Some(followed) = all.get_mut(cluster) else { return Vec::new() };
        let changed = followed.note(event);
        followed.unready.retain(|name, _| followed.by_name.get(name).is_some_and(|node| !is_ready(node)));
        for name in followed.by_name.iter().filter(|(_, node)| !is_ready(node)).map(|(name, _)| name) {
            if !followed.unready.contains_key(name) {
                followed.unready.insert(name.clone(), now);
            }
        }
        changed
    }
}

impl Followed {
    fn note(&mut self, event: Event<Node>) -> Vec<String> {
        let followed = self;
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            followed.failure = None;
        }
        match event {
            Event::Init => followed.begun = Some(HashMap::new()),
            Event::InitApply(node) => {
                if let (Some((name, node)), Some(begun)) = (known(node), followed.begun.as_mut()) {
                    begun.insert(name, node);
                }
            }
            Event::InitDone => {
                let now = followed.begun.take().unwrap_or_default();
                let before = std::mem::replace(&mut followed.by_name, now);
                let first = !std::mem::replace(&mut followed.known, true);
                let gone = before.keys().filter(|name| !followed.by_name.contains_key(*name));
                let news = followed.by_name.iter().filter(|(name, node)| first || before.get(*name) != Some(node)).map(|(name, _)| name);
                return gone.chain(news).cloned().collect();
            }
            Event::Apply(node) => {
                if let Some((name, node)) = known(node)
                    && followed.by_name.insert(name.clone(), node.clone()).as_ref() != Some(&node)
                {
                    return vec![name];
                }
            }
            Event::Delete(node) => {
                return followed.by_name.remove_entry(&node.name_any()).map(|(name, _)| name).into_iter().collect();
            }
        }
        Vec::new()
    }
}

/// Returns a Node whose provider ID is ours, with its name, without the fields that change often and are not read.
fn known(mut node: Node) -> Option<(String, Arc<Node>)> {
    ProviderId::parse(node.spec.as_ref()?.provider_id.as_deref()?).ok()?;
    node.metadata.managed_fields = None;
    node.metadata.resource_version = None;
    if let Some(status) = node.status.as_mut() {
        status.images = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
    Some((node.name_any(), Arc::new(node)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const VM: &str = "windows://lab/3f2504e0-4f89-51d3-9a0c-0305e82c3301";

    fn node(name: &str, provider_id: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}})).unwrap()
    }

    #[test]
    fn a_node_that_names_the_vm_of_another_changes_nothing_for_that_one() {
        let cluster = ClusterRef::cluster_api("lab", "c1");
        let identity =
            |name: &str| NodeIdentity { name: crate::api::name::HostName::parse(name).unwrap(), provider_id: ProviderId::parse(VM).unwrap() };
        let nodes = Nodes::default();
        nodes.0.lock().entry(cluster.clone()).or_default();
        for event in [Event::Init, Event::InitApply(node("win-1", VM)), Event::InitDone] {
            nodes.note(&cluster, event, Timestamp::UNIX_EPOCH);
        }
        assert_eq!(
            nodes.note(&cluster, Event::Apply(node("win-2", VM)), Timestamp::UNIX_EPOCH),
            ["win-2"],
            "what concerns another name is no news of this machine"
        );
        assert!(nodes.of(&cluster, &identity("win-1")).is_some());
        nodes.note(&cluster, Event::Delete(node("win-2", VM)), Timestamp::UNIX_EPOCH);
        assert!(nodes.of(&cluster, &identity("win-1")).is_some(), "the Node of the machine is still there");
        assert_eq!(nodes.note(&cluster, Event::Delete(node("win-1", VM)), Timestamp::UNIX_EPOCH), ["win-1"]);
        assert!(nodes.of(&cluster, &identity("win-1")).is_none());
        nodes.note(&cluster, Event::Apply(node("win-1", "windows://other/3f2504e0-4f89-51d3-9a0c-0305e82c3301")), Timestamp::UNIX_EPOCH);
        assert!(nodes.of(&cluster, &identity("win-1")).is_none(), "of another hypervisor");
    }

    #[test]
    fn nodes_that_cannot_be_seen_are_an_error_until_they_are_listed() {
        let cluster = ClusterRef::cluster_api("lab", "c1");
        let nodes = Nodes::default();
        let forbidden = WorkloadError::Forbidden { what: "list nodes".into() };
        let unreachable = WorkloadError::Unreachable { endpoint: "https://10.0.0.1:6443".into(), cause: "refused".into() };
        nodes.fail(&cluster, &forbidden);
        assert_eq!(nodes.listed(&cluster), Ok(false), "it is not watched");
        nodes.0.lock().entry(cluster.clone()).or_default();
        for error in [&forbidden, &unreachable] {
            nodes.fail(&cluster, error);
            assert_eq!(nodes.listed(&cluster).as_ref(), Err(error));
        }
        nodes.note(&cluster, Event::Init, Timestamp::UNIX_EPOCH);
        assert_eq!(nodes.listed(&cluster), Err(unreachable.clone()), "it has only begun");
        nodes.note(&cluster, Event::InitDone, Timestamp::UNIX_EPOCH);
        assert_eq!(nodes.listed(&cluster), Ok(true));
        nodes.fail(&cluster, &unreachable);
        assert_eq!(nodes.listed(&cluster), Ok(true), "that passes by itself");
        nodes.fail(&cluster, &forbidden);
        assert_eq!(nodes.listed(&cluster), Err(forbidden), "what becomes of them is not seen");
        nodes.note(&cluster, Event::Apply(node("win-1", VM)), Timestamp::UNIX_EPOCH);
        assert_eq!(nodes.listed(&cluster), Ok(true));
    }
}
