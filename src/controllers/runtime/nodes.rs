//! The Nodes of machines that nobody else follows: one watch per workload cluster of pools that stand alone. A Node that changes
//! wakes its machine, its configuration and its pool; no machine asks for its Node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::controllers::Context;
use super::follower::Follower;
use crate::api::machine::WindowsMachine;
use crate::api::name::{ProviderId, VmUuid};
use crate::api::pool::joins;
use crate::cluster::nodes::events;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::lifecycle::machine::vm_uuid;
use crate::lifecycle::standalone::completion;

/// Namespace of the machines, and what they join.
type Key = (String, String);

#[derive(Default)]
pub struct Nodes(Mutex<HashMap<Key, Followed>>);

#[derive(Default)]
struct Followed {
    watch: Follower,
    /// Whether all Nodes were seen once.
    known: bool,
    by_vm: HashMap<VmUuid, Arc<Node>>,
    /// What is seen before all of them are.
    begun: Option<HashMap<VmUuid, Arc<Node>>>,
}

impl Nodes {
    /// Whether a Node that is not here was not there either when the cluster was last heard of.
    pub fn are_known(&self, namespace: &str, joins: &str) -> bool {
        self.lock().get(&(namespace.to_owned(), joins.to_owned())).is_some_and(|f| f.known)
    }

    /// The Node of a VM.
    pub fn of(&self, namespace: &str, joins: &str, vm: VmUuid) -> Option<Arc<Node>> {
        self.lock().get(&(namespace.to_owned(), joins.to_owned()))?.by_vm.get(&vm).cloned()
    }

    /// Follows a cluster unless it is followed with this very kubeconfig.
    pub fn follow(&self, ctx: &Context, namespace: &str, joins: &str, workload: &Workload) {
        let key = (namespace.to_owned(), joins.to_owned());
        let spawn = |workload| ctx.spawn(run(ctx.clone(), key.clone(), workload));
        // With another kubeconfig the Nodes stay known until those behind it are.
        self.lock().entry(key.clone()).or_default().watch.start(workload, spawn);
    }

    pub fn forget(&self, namespace: &str, joins: &str) {
        self.lock().remove(&(namespace.to_owned(), joins.to_owned()));
    }

    /// Takes in what the watch says; gives the Nodes that are not what they were.
    fn note(&self, key: &Key, event: Event<Node>) -> Vec<(VmUuid, String)> {
        let mut all = self.lock();
        let Some(followed) = all.get_mut(key) else { return Vec::new() };
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Followed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A Node of ours, without what changes all the time and nobody reads.
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
async fn run(ctx: Context, key: Key, workload: Workload) {
    let mut events = std::pin::pin!(events(&workload));
    while let Some(next) = events.next().await {
        match next {
            Ok(event) => {
                let complete = matches!(event, Event::InitDone);
                let news = ctx.nodes.note(&key, event);
                for (vm, node) in &news {
                    wake(&ctx, &key, *vm, node);
                }
                if complete {
                    ctx.wake.standing_alone(&ctx, &key.0);
                }
            }
            Err(error) => {
                tracing::warn!(namespace = key.0, joins = key.1, error = error.label(), "nodes: {error}");
                ctx.workloads.doubt(&key.0, &key.1, &error).await;
            }
        }
    }
}

/// Wakes whom a Node concerns. It has the name of its machine, unless that is no host name.
fn wake(ctx: &Context, key: &Key, vm: VmUuid, node: &str) {
    let is_meant = |machine: &Arc<WindowsMachine>| vm_uuid(machine) == vm;
    let by_name = ctx.stores.windows_machines.get(&key.0, node).filter(is_meant);
    let Some(machine) = by_name.or_else(|| ctx.stores.windows_machines.all(&key.0).into_iter().find(is_meant)) else { return };
    ctx.wake.machine(&machine);
    ctx.wake.pool_of(&machine);
    if let Some(config) = ctx.config_of(&machine) {
        ctx.wake.config(&config);
    }
}

impl Context {
    /// Completes the Node of a machine that stands alone, as core does for others. No request when it is complete.
    pub async fn complete_node(&self, object: &WindowsMachine) -> Result<(), WorkloadError> {
        let Some(joins) = joins(&object.metadata) else { return Ok(()) };
        let namespace = object.namespace().unwrap_or_default();
        let Some(node) = self.nodes.of(&namespace, joins, vm_uuid(object)) else { return Ok(()) };
        if completion(object, &node).is_none() {
            return Ok(());
        }
        let workload = self.joined(&namespace, joins).await?;
        workload.change_node(&node.name_any(), |now| completion(object, now).filter(|_| now.metadata.uid == node.metadata.uid)).await
    }

    /// The cluster that objects of pools which stand alone join, with its Nodes followed.
    pub async fn joined(&self, namespace: &str, joins: &str) -> Result<Arc<Workload>, WorkloadError> {
        let workload = self.workload(namespace, joins).await?;
        self.nodes.follow(self, namespace, joins, &workload);
        Ok(workload)
    }
}
