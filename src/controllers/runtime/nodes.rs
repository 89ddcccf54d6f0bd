//! The Nodes of the machines of standalone pools: one watch per workload cluster. A Node that changes triggers a pass of its machine,
//! its configuration and its pool; no pass reads a Node by itself to learn what has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tokio::task::AbortHandle;

use super::watch_task::WatchTask;
use super::workload_clusters::WorkloadClusters;
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::name::{ProviderId, VmUuid};
use crate::cluster::nodes::events;
use crate::cluster::workload::Workload;
use crate::lifecycle::identity::vm_uuid;
use crate::lifecycle::owner::is_ready;

/// What the watches have shown, by workload cluster.
#[derive(Default)]
pub struct Nodes(Mutex<HashMap<ClusterRef, Followed>>);

#[derive(Default)]
struct Followed {
    watch: WatchTask,
    /// Whether all Nodes were listed once.
    known: bool,
    by_vm: HashMap<VmUuid, Arc<Node>>,
    /// Since when each of them is seen not Ready, by our own clock.
    unready: HashMap<VmUuid, Timestamp>,
    /// A new listing that is not complete yet.
    begun: Option<HashMap<VmUuid, Arc<Node>>>,
}

impl Nodes {
    /// Whether all Nodes of the cluster have been listed, so that one that is not here does not exist.
    pub fn are_known(&self, cluster: &ClusterRef) -> bool {
        self.lock().get(cluster).is_some_and(|f| f.known)
    }

    /// The Node of a VM.
    pub fn of(&self, cluster: &ClusterRef, vm: VmUuid) -> Option<Arc<Node>> {
        self.lock().get(cluster)?.by_vm.get(&vm).cloned()
    }

    /// Since when the Node of a VM is seen not Ready, by the clock of this process.
    pub fn unready_since(&self, cluster: &ClusterRef, vm: VmUuid) -> Option<Timestamp> {
        self.lock().get(cluster)?.unready.get(&vm).copied()
    }

    /// Watches a cluster unless it is watched with this kubeconfig.
    pub(super) fn watch(&self, cluster: &ClusterRef, workload: &Workload, spawn: impl FnOnce(Workload) -> AbortHandle) {
        // With another kubeconfig the Nodes stay known until those behind it are.
        self.lock().entry(cluster.clone()).or_default().watch.start(workload, spawn);
    }

    pub(super) fn forget(&self, cluster: &ClusterRef) {
        self.lock().remove(cluster);
    }

    /// Takes in an event of the watch; returns the Nodes that have changed.
    fn note(&self, cluster: &ClusterRef, event: Event<Node>, now: Timestamp) -> Vec<(VmUuid, String)> {
        let mut all = self.lock();
        let Some(followed) = all.get_mut(cluster) else { return Vec::new() };
        let changed = followed.note(event);
        followed.unready.retain(|vm, _| followed.by_vm.get(vm).is_some_and(|node| !is_ready(node)));
        for vm in followed.by_vm.iter().filter(|(_, node)| !is_ready(node)).map(|(vm, _)| *vm) {
            followed.unready.entry(vm).or_insert(now);
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterRef, Followed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed {
    fn note(&mut self, event: Event<Node>) -> Vec<(VmUuid, String)> {
        let followed = self;
        match event {
            Event::Init => followed.begun = Some(HashMap::new()),
            Event::InitApply(node) => {
                if let (Some((vm, node)), Some(begun)) = (known(node), followed.begun.as_mut()) {
                    begun.insert(vm, node);
                }
            }
            Event::InitDone => {
                let now = followed.begun.take().unwrap_or_default();
                let before = std::mem::replace(&mut followed.by_vm, now);
                let first = !std::mem::replace(&mut followed.known, true);
                let gone = before.iter().filter(|(vm, _)| !followed.by_vm.contains_key(*vm));
                let news = followed.by_vm.iter().filter(|(vm, node)| first || before.get(*vm) != Some(node));
                return gone.chain(news).map(|(vm, node)| (*vm, node.name_any())).collect();
            }
            Event::Apply(node) => {
                if let Some((vm, node)) = known(node) {
                    let name = node.name_any();
                    if followed.by_vm.insert(vm, node.clone()).as_ref() != Some(&node) {
                        return vec![(vm, name)];
                    }
                }
            }
            Event::Delete(node) => {
                if let Some((vm, node)) = known(node)
                    && followed.by_vm.remove(&vm).is_some()
                {
                    return vec![(vm, node.name_any())];
                }
            }
        }
        Vec::new()
    }
}

/// A Node of ours, without what changes all the time and is not read.
fn known(mut node: Node) -> Option<(VmUuid, Arc<Node>)> {
    let vm = ProviderId::parse(node.spec.as_ref()?.provider_id.as_deref()?).ok()?.vm;
    node.metadata.managed_fields = None;
    node.metadata.resource_version = None;
    if let Some(status) = node.status.as_mut() {
        status.images = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
    Some((vm, Arc::new(node)))
}

/// Follows the Nodes of one workload cluster until the task is aborted.
pub(super) async fn follow(clusters: WorkloadClusters, cluster: ClusterRef, workload: Workload) {
    let context = clusters.context();
    let mut events = std::pin::pin!(events(&workload));
    while let Some(next) = events.next().await {
        match next {
            Ok(event) => {
                let complete = matches!(event, Event::InitDone);
                for (vm, node) in &context.nodes.note(&cluster, event, context.management.now()) {
                    request_passes(&clusters, &cluster.namespace, *vm, node);
                }
                if complete {
                    context.requests.all_standalone(&context.caches, &cluster.namespace);
                }
            }
            Err(error) => {
                tracing::warn!(namespace = cluster.namespace, %cluster, error = error.label(), "nodes: {error}");
                clusters.doubt(&cluster, &error).await;
            }
        }
    }
}

/// Passes of the objects that a Node concerns. It has the name of its machine, unless that is no host name.
fn request_passes(clusters: &WorkloadClusters, namespace: &str, vm: VmUuid, node: &str) {
    let context = clusters.context();
    let is_its_machine = |machine: &Arc<WindowsMachine>| vm_uuid(machine) == vm;
    let by_name = context.caches.windows_machines.get(namespace, node).filter(is_its_machine);
    let Some(machine) = by_name.or_else(|| context.caches.windows_machines.all(namespace).into_iter().find(is_its_machine)) else { return };
    context.requests.machine(&machine);
    context.requests.pool_of(&machine);
    if let Some(config) = context.caches.config_of(&machine) {
        context.requests.config(&config);
    }
}
