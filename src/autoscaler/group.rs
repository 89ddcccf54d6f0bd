//! A pool as a node group: who is in it, and how far each machine is. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::wire::instance_status::InstanceState;
use super::wire::{ExternalGrpcNode, Instance, InstanceErrorInfo, InstanceStatus, NodeGroup};
use crate::api::capi::PAUSED_ANNOTATION;
use crate::api::cluster_ref::ClusterRef;
use crate::api::condition::{Blame, ConditionType, Reason, find, problem};
use crate::api::machine::WindowsMachine;
use crate::api::name::ProviderId;
use crate::api::pool::WindowsNodePool;
use crate::domain::identity::{future_provider_id, host_name, provider_id, vm_uuid};

/// Hypervisor in the identity of a machine that has none yet. No WindowsHypervisor can have this name.
const UNPLACED: &str = "-";
/// `instanceErrorClass`: the group is taken for full, and another one is tried.
const OUT_OF_RESOURCES: i32 = 1;
const OTHER: i32 = 99;

/// A pool and its machines, as far as they are known.
#[derive(Clone)]
pub struct Group {
    pub pool: WindowsNodePool,
    pub machines: Vec<Arc<WindowsMachine>>,
}

/// What the autoscaler calls a pool.
pub fn id(pool: &WindowsNodePool) -> String {
    format!("{}/{}", pool.metadata.namespace.as_deref().unwrap_or_default(), pool.metadata.name.as_deref().unwrap_or_default())
}

/// Least and most machines, if the autoscaler may scale the pool: it has bounds, it stands alone, nothing stops it.
pub fn bounds(pool: &WindowsNodePool) -> Option<(i32, i32)> {
    let bounds = pool.spec.autoscaling.as_ref()?;
    let paused = pool.spec.paused || pool.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(PAUSED_ANNOTATION));
    let standalone = ClusterRef::of_pool(pool).is_some();
    (standalone && !paused && pool.metadata.deletion_timestamp.is_none()).then_some((bounds.min_replicas, bounds.max_replicas))
}

/// A pool as it is listed.
pub fn listed(pool: &WindowsNodePool) -> Option<NodeGroup> {
    let (min_size, max_size) = bounds(pool)?;
    let told = pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let ready = find(told, ConditionType::Ready).map_or("not looked at yet", |c| c.reason.as_str());
    let debug = format!("WindowsNodePool {}: {} machines asked for, {min_size} to {max_size}, {ready}", id(pool), pool.spec.replicas);
    Some(NodeGroup { id: id(pool), min_size, max_size, debug })
}

impl Group {
    /// Machines that are neither leaving nor named to leave.
    pub fn staying(&self) -> impl Iterator<Item = &WindowsMachine> {
        let named = self.pool.named_for_removal();
        self.machines.iter().map(|m| &**m).filter(move |m| !leaves(m, &named))
    }

    /// The machine of this Node. Where there is none yet, the autoscaler takes the identity of the instance for its name; the hypervisor in
    /// that identity may have been chosen after it was told. A Node that names the provider ID of another machine is none of ours.
    pub fn machine(&self, node: &ExternalGrpcNode) -> Option<&WindowsMachine> {
        let vm = ProviderId::parse(&node.provider_id).ok()?.vm;
        let machine = self.machines.iter().map(|m| &**m).find(|m| vm_uuid(m) == vm)?;
        let is_its_node = || host_name(machine).is_ok_and(|name| name.as_str() == node.name) && identity(machine) == node.provider_id;
        (node.name == node.provider_id || is_its_node()).then_some(machine)
    }

    /// Every machine, with what hinders it.
    pub fn instances(&self) -> Vec<Instance> {
        let named = self.pool.named_for_removal();
        self.machines.iter().map(|m| Instance { id: identity(m), status: Some(self.status(m, &named)) }).collect()
    }

    fn status(&self, machine: &WindowsMachine, named: &BTreeSet<String>) -> InstanceStatus {
        let conditions = machine.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let joined = find(conditions, ConditionType::NodeJoined).is_some_and(|c| c.status == "True");
        let (state, error_info) = match (leaves(machine, named), joined) {
            (true, _) => (InstanceState::InstanceDeleting, None),
            (false, true) => (InstanceState::InstanceRunning, None),
            (false, false) => (InstanceState::InstanceCreating, hindrance(conditions).or_else(|| self.stopped())),
        };
        InstanceStatus { instance_state: state.into(), error_info }
    }

    /// The pool has given up on its template: that is said of every machine that is not there yet.
    fn stopped(&self) -> Option<InstanceErrorInfo> {
        let told = self.pool.status.as_ref().map(|s| s.conditions.as_slice())?;
        let why = told.iter().find(|c| c.status == "False" && (c.reason == Reason::RolloutStopped || c.reason == Reason::TemplateMissing))?;
        Some(error(why, OTHER))
    }
}

fn leaves(machine: &WindowsMachine, named: &BTreeSet<String>) -> bool {
    machine.metadata.deletion_timestamp.is_some() || machine.metadata.name.as_ref().is_some_and(|name| named.contains(name))
}

/// `spec.providerID` of the Node that the machine is or will be.
fn identity(machine: &WindowsMachine) -> String {
    let known = provider_id(machine).or_else(|| future_provider_id(machine));
    known.unwrap_or_else(|| ProviderId { hypervisor: UNPLACED.into(), vm: vm_uuid(machine) }).to_string()
}

/// What keeps a machine from becoming a Node and does not pass by itself. A hypervisor that does not answer may come back: that is
/// waited for, as long as the autoscaler waits for a node.
fn hindrance(conditions: &[Condition]) -> Option<InstanceErrorInfo> {
    let broken = |type_| find(conditions, type_).filter(|c| c.status == "False");
    if let Some(ready) = broken(ConditionType::Ready) {
        match problem(ready) {
            Some(Reason::NoCapacity) => return Some(error(ready, OUT_OF_RESOURCES)),
            Some(reason) if reason == Reason::VirtualMachineRemoved || reason.blame() == Some(Blame::Spec) => return Some(error(ready, OTHER)),
            _ => {}
        }
    }
    broken(ConditionType::NodeJoined).filter(|c| problem(c).is_some()).map(|c| error(c, OTHER))
}

fn error(condition: &Condition, instance_error_class: i32) -> InstanceErrorInfo {
    InstanceErrorInfo { error_code: condition.reason.clone(), error_message: condition.message.clone(), instance_error_class }
}
