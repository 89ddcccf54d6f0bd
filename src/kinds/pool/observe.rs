//! The cached state of a pool: its owner, and the state of its machines.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::context::Context;
use super::decide::build::{is_name_of, is_of};
use super::decide::member::{Known, member};
use super::decide::situation::Member;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Cluster, GROUP, Machine, MachinePool};
use crate::api::cluster_ref::ClusterRef;
use crate::api::machine::WindowsMachine;
use crate::api::pool::{POOL_LABEL, WindowsNodePool};
use crate::domain::identity::{INFRASTRUCTURE, chosen};
use crate::domain::owner::NodeRequest;
use crate::kinds::machine::decide::step::Reach;

/// The owner that requests the machines.
pub enum PoolOwner {
    None,
    Unseen,
    MachinePool(Arc<MachinePool>),
    /// The pool itself, for the cluster that it joins.
    Standalone(ClusterRef),
}

pub fn owner(ctx: &Context, object: &WindowsNodePool) -> PoolOwner {
    if let Some(cluster) = ClusterRef::of_pool(object) {
        return PoolOwner::Standalone(cluster);
    }
    let Some(reference) = capi::owner(object.metadata.owner_references.as_ref(), GROUP, "MachinePool") else { return PoolOwner::None };
    let found = ctx.caches.machine_pools.get(&object.namespace().unwrap_or_default(), &reference.name);
    found.filter(|p| p.metadata.uid.as_deref() == Some(&reference.uid)).map_or(PoolOwner::Unseen, PoolOwner::MachinePool)
}

fn cluster_name(object: &WindowsNodePool) -> Option<&str> {
    capi::cluster_name(object.metadata.labels.as_ref()).filter(|_| ClusterRef::of_pool(object).is_none())
}

/// Whether the pool belongs to a Cluster, which may be paused.
pub fn names_cluster(object: &WindowsNodePool) -> bool {
    cluster_name(object).is_some()
}

/// The Cluster of a pool; a standalone pool has none.
pub fn cluster(ctx: &Context, object: &WindowsNodePool) -> Option<Arc<Cluster>> {
    let name = cluster_name(object)?;
    ctx.caches.clusters.get(&object.namespace().unwrap_or_default(), name)
}

/// One machine with all related objects.
pub struct PoolMachine {
    pub object: Arc<WindowsMachine>,
    /// Its Machine of Cluster API.
    pub machine: Option<Arc<Machine>>,
    pub request: Option<NodeRequest>,
    pub config: Option<Arc<WindowsBootstrapConfig>>,
    pub member: Member,
}

/// The machines of the pool, by name. `hash` is the hash of the pool's template.
pub fn machines(ctx: &Context, object: &WindowsNodePool, hash: &str) -> Vec<PoolMachine> {
    let (namespace, uid) = (object.namespace().unwrap_or_default(), object.uid().unwrap_or_default());
    let mut all = ctx.caches.windows_machines.all(&namespace);
    all.retain(|m| is_its(&m.metadata, object));
    let unseen = ctx.memories.unseen(&uid, &all, ctx.management.now());
    all.extend(unseen.into_iter().map(Arc::new));
    all.sort_by_key(|m| m.name_any());
    let standalone = ClusterRef::of_pool(object).is_some();
    let named = if standalone { object.named_for_removal() } else { BTreeSet::new() };
    all.into_iter().map(|m| machine(ctx, object, m, hash, standalone, &named)).collect()
}

/// The kinds and names of the pool's machines, and of their Machines of Cluster API, of which only the metadata could ever be read. Without its
/// Machine, a WindowsMachine would be deleted directly, and core would not drain its Node.
pub fn unreadable(ctx: &Context, object: &WindowsNodePool) -> Vec<String> {
    let namespace = object.namespace().unwrap_or_default();
    let mut of_core = ctx.caches.machines.unreadable(&namespace);
    let mut own = ctx.caches.windows_machines.unreadable(&namespace);
    own.retain(|machine| is_its(machine, object));
    // Core gives the Machine the name of the WindowsMachine.
    let has = |name: &str| ctx.caches.windows_machines.get(&namespace, name).is_some_and(|machine| is_its(&machine.metadata, object));
    of_core.retain(|machine| ClusterRef::of_pool(object).is_none() && machine.name.as_deref().is_some_and(has));
    let named = |kind: &'static str, all: Vec<ObjectMeta>| all.into_iter().filter_map(move |machine| Some(format!("{kind} {}", machine.name?)));
    named("WindowsMachine", own).chain(named("Machine", of_core)).collect()
}

/// Whether the machine belongs to the pool, even if it has lost its owner reference.
pub fn is_its(machine: &ObjectMeta, pool: &WindowsNodePool) -> bool {
    is_of(machine, pool.metadata.uid.as_deref().unwrap_or_default()) || is_lost(machine, pool)
}

/// Whether a machine of this pool has lost its owner reference, or names the pool before a restore, with another UID. Labels alone are no
/// proof: users copy them. The name must be one that the pool gives.
pub fn is_lost(machine: &ObjectMeta, pool: &WindowsNodePool) -> bool {
    let is_named = is_name_of(pool, machine.name.as_deref().unwrap_or_default());
    let is_marked = is_named && pool_label(machine) == Some(&capi::label_value(&pool.name_any()));
    let owner = capi::owner(machine.owner_references.as_ref(), INFRASTRUCTURE, "WindowsNodePool");
    is_marked && owner.is_none_or(|owner| owner.name == pool.name_any() && Some(&owner.uid) != pool.metadata.uid.as_ref())
}

fn pool_label(meta: &ObjectMeta) -> Option<&String> {
    meta.labels.as_ref()?.get(POOL_LABEL)
}

/// Collects the facts about a machine. `named` are the machines that are to be removed by name.
fn machine(
    ctx: &Context,
    pool: &WindowsNodePool,
    object: Arc<WindowsMachine>,
    hash: &str,
    standalone: bool,
    named: &BTreeSet<String>,
) -> PoolMachine {
    let (namespace, uid) = (object.namespace().unwrap_or_default(), pool.uid().unwrap_or_default());
    // Core gives the Machine the name of the WindowsMachine, and creates the Machine before it sets the owner reference.
    let found = ctx.caches.machines.get(&namespace, &object.name_any()).filter(|m| m.spec.infrastructure_ref.name == object.name_any());
    let machine = found.filter(|_| !standalone);
    let request = match &machine {
        Some(machine) => Some(NodeRequest::of_machine(machine)),
        None if standalone => ctx.owners.of_machine(&object).request().cloned(),
        None => None,
    };
    let config = ctx.caches.config_of(&object);
    let removed = [object.uid(), machine.as_ref().and_then(|m| m.uid())].into_iter().flatten().any(|one| ctx.memories.is_removed(&uid, &one));
    let reach = chosen(&object).map(|hypervisor| ctx.hypervisors.reach(&namespace, &hypervisor));
    let known = Known {
        object: &object,
        request: request.as_ref(),
        config: config.as_deref(),
        hash,
        removed,
        unreachable: matches!(reach, Some(Reach::Missing | Reach::Unreachable(_))),
        standalone,
        named: named.contains(&object.name_any()),
        not_ready_seconds: pool.spec.health.not_ready_seconds,
        now: ctx.management.now(),
    };
    let member = member(&known);
    PoolMachine { object, machine, request, config, member }
}
