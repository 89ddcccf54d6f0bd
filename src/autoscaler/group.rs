//! A pool as a node group: its machines, and the state of each. Pure.

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

/// The hypervisor in the identity of a machine that has none yet. No WindowsHypervisor can have this name.
const UNPLACED: &str = "-";
/// `instanceErrorClass`: the autoscaler treats the group as full and tries another one.
const OUT_OF_RESOURCES: i32 = 1;
const OTHER: i32 = 99;

/// A pool and its known machines.
#[derive(Clone)]
pub struct Group {
    pub pool: WindowsNodePool,
    pub machines: Vec<Arc<WindowsMachine>>,
}

/// Returns the id of a pool for the autoscaler.
pub fn id(pool: &WindowsNodePool) -> String {
    format!("{}/{}", pool.metadata.namespace.as_deref().unwrap_or_default(), pool.metadata.name.as_deref().unwrap_or_default())
}

/// Returns the least and most machines, if the autoscaler may scale the pool: it has bounds, is standalone, and is neither paused nor being
/// deleted.
pub fn bounds(pool: &WindowsNodePool) -> Option<(i32, i32)> {
    let bounds = pool.spec.autoscaling.as_ref()?;
    let paused = pool.spec.paused || pool.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(PAUSED_ANNOTATION));
    let standalone = ClusterRef::of_pool(pool).is_some();
    (standalone && !paused && pool.metadata.deletion_timestamp.is_none()).then_some((bounds.min_replicas, bounds.max_replicas))
}

/// Returns the entry of a pool in the list of node groups.
pub fn listed(pool: &WindowsNodePool) -> Option<NodeGroup> {
    let (min_size, max_size) = bounds(pool)?;
    let told = pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let ready = find(told, ConditionType::Ready).map_or("not looked at yet", |c| c.reason.as_str());
    let debug = format!("WindowsNodePool {}: {} machines asked for, {min_size} to {max_size}, {ready}", id(pool), pool.spec.replicas);
    Some(NodeGroup { id: id(pool), min_size, max_size, debug })
}

impl Group {
    /// Returns the machines that are neither being removed nor marked for removal.
    pub fn staying(&self) -> impl Iterator<Item = &WindowsMachine> {
        let named = self.pool.named_for_removal();
        self.machines.iter().map(|m| &**m).filter(move |m| !leaves(m, &named))
    }

    /// Returns the machine of this Node. Without a Node, the autoscaler uses the identity of the instance as the name; the hypervisor in that
    /// identity may be outdated. A Node that names the provider ID of another machine is not ours.
    pub fn machine(&self, node: &ExternalGrpcNode) -> Option<&WindowsMachine> {
        let vm = ProviderId::parse(&node.provider_id).ok()?.vm;
        let machine = self.machines.iter().map(|m| &**m).find(|m| vm_uuid(m) == vm)?;
        let is_its_node = || host_name(machine).is_ok_and(|name| name.as_str() == node.name) && identity(machine) == node.provider_id;
        (node.name == node.provider_id || is_its_node()).then_some(machine)
    }

    /// Returns every machine with its status.
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

    /// Returns the error of a pool that has given up on its template. It is reported for every machine that has not joined.
    fn stopped(&self) -> Option<InstanceErrorInfo> {
        let told = self.pool.status.as_ref().map(|s| s.conditions.as_slice())?;
        let why = told.iter().find(|c| c.status == "False" && (c.reason == Reason::RolloutStopped || c.reason == Reason::TemplateMissing))?;
        Some(error(why, OTHER))
    }
}

fn leaves(machine: &WindowsMachine, named: &BTreeSet<String>) -> bool {
    machine.metadata.deletion_timestamp.is_some() || machine.metadata.name.as_ref().is_some_and(|name| named.contains(name))
}

/// Returns `spec.providerID` of the Node that the machine is or will be.
fn identity(machine: &WindowsMachine) -> String {
    let known = provider_id(machine).or_else(|| future_provider_id(machine));
    known.unwrap_or_else(|| ProviderId { hypervisor: UNPLACED.into(), vm: vm_uuid(machine) }).to_string()
}

/// Returns the lasting error that keeps a machine from becoming a Node. A hypervisor that does not answer may recover, so it is no error: the
/// autoscaler's own limit for a node applies.
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
