//! WindowsMachine, first half: may a hypervisor be called, and which one? (`docs/design/cluster-api.md#a-windowsmachine-in-order`.)
//!
//! The second half, once the hypervisor has answered, is [`vm`](super::vm).

use std::time::Duration;

use jiff::Timestamp;

use super::placement::{self, Places};
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::{FINALIZER, FirmwareType, WindowsMachine};
use crate::api::name::{NameError, ObjectKey, mebibytes};
use crate::domain::decision::Decision;
use crate::domain::gate::{Gate, paused_condition};
use crate::domain::identity::{chosen, host_name, is_provisioned, key, vm_uuid};
use crate::domain::owner::{Owner, TargetCluster};
use crate::guards::Guard;
use crate::vm::{MacAddress, MachineKey, Nic, VmDisk, VmSpec};

/// The facts that are known before a hypervisor is called.
pub struct ObservedMachine<'a> {
    pub object: &'a WindowsMachine,
    pub owner: &'a Owner,
    pub cluster: Option<&'a TargetCluster>,
    /// Names of the WindowsHypervisors in the namespace.
    pub hypervisors: &'a [String],
    /// Returns the state of a hypervisor.
    pub reach: &'a (dyn Fn(&str) -> Reach + Sync),
    /// The WindowsMachine that owns the VM that this object's provider ID names: this object is a copy.
    pub twin: Option<&'a ObjectKey>,
}

/// The known state of a hypervisor, without a call to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Missing,
    /// The hypervisor was not checked yet.
    Unchecked,
    Unreachable(String),
    Reachable,
}

/// The next step, before the hypervisor is called.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineStep {
    /// The object is not ours (yet): nothing may be written, not even status.
    Ignore,
    /// Only report.
    Wait,
    /// Store the finalizer, the chosen hypervisor and the cluster of the owner mark, in one write.
    Adopt { hypervisor: String },
    /// Observe the running VM, then decide with [`vm`](super::vm).
    Run(Target),
    /// Tear down the Node if that is CAPW's job ([`crate::domain::node::teardown`]). Then observe the VM and decide with [`vm`](super::vm).
    Remove(Target),
    /// The finalizer is set, but the machine was never adopted, so no VM can exist.
    Release,
}

/// The VM and its hypervisor.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub hypervisor: String,
    pub key: MachineKey,
    pub goal: Goal,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Goal {
    /// The VM runs. `secret` is the name of the bootstrap Secret.
    Run { spec: Box<VmSpec>, secret: String },
    /// The VM is removed completely.
    Gone,
}

/// Decides whether the hypervisor may be called, and for which goal.
pub fn decide(s: &ObservedMachine<'_>, now: Timestamp) -> Decision<MachineStep> {
    match Gate::of(&s.object.metadata, FINALIZER, s.owner, s.cluster) {
        Gate::Closed => Decision::new(MachineStep::Ignore),
        Gate::Paused(why) => Decision::new(MachineStep::Wait).with_condition(paused_condition(Some(why))),
        Gate::Leaving => decide_deletion(s),
        Gate::Open { ours } => decide_life(s, ours, now),
    }
}

fn decide_life(s: &ObservedMachine<'_>, ours: bool, now: Timestamp) -> Decision<MachineStep> {
    if let Some(twin) = s.twin {
        let message = format!(
            "spec.providerID names the VM of WindowsMachine {twin}, of which this is a copy: delete this object, and make copies without spec.providerID"
        );
        return stuck(Reason::ForeignVirtualMachine, message);
    }
    let Some(owner) = s.owner.request() else {
        return waiting(Reason::WaitingForClusterInfrastructureReady, "its Machine, or the pool that owns it, is not there (yet)", s, now);
    };
    let Some(cluster) = s.cluster else {
        return waiting(Reason::WaitingForClusterInfrastructureReady, "its Cluster is not there (yet)", s, now);
    };
    if owner.is_control_plane {
        return stuck(Reason::ControlPlaneMachineRefused, "Windows cannot run a control plane: use WindowsMachineTemplate for workers only");
    }
    let places = Places { hypervisors: s.hypervisors, cluster, failure_domain: owner.failure_domain.as_deref() };
    let hypervisor = match placement::choose(s.object, &places) {
        Ok(name) => name,
        Err((why, message)) => return stuck(why, message).requeue_after(Duration::from_secs(60)),
    };
    let spec = match vm_spec(s.object) {
        Ok(spec) => spec,
        Err(error @ NameError::HostNameTooLong { .. }) => return stuck(Reason::HostNameTooLong, format!("metadata.name: {error}")),
        Err(error) => return stuck(Reason::InvalidSpec, error.to_string()),
    };
    if !ours && Guard::MachineFinalizer.holds() {
        return Decision::new(MachineStep::Adopt { hypervisor });
    }
    let provisioned = is_provisioned(s.object);
    if !provisioned && !cluster.infrastructure_provisioned {
        return waiting(Reason::WaitingForClusterInfrastructureReady, format!("Cluster {} reports no infrastructure yet", owner.cluster), s, now);
    }
    let Some(secret) = owner.data_secret.clone() else {
        return if cluster.control_plane_initialized {
            waiting(
                Reason::WaitingForBootstrapData,
                format!("Machine {} has no bootstrap data yet; see its bootstrap configuration", owner.name),
                s,
                now,
            )
        } else {
            waiting(Reason::WaitingForControlPlaneInitialized, format!("the control plane of Cluster {} is not initialized", owner.cluster), s, now)
        };
    };
    match (s.reach)(&hypervisor) {
        Reach::Reachable => {
            let goal = Goal::Run { spec: Box::new(spec), secret };
            Decision::new(MachineStep::Run(Target { hypervisor, key: key(s.object), goal }))
        }
        reach => unreachable(&hypervisor, reach, provisioned),
    }
}

/// Decides the deletion, which needs only the object itself and its hypervisor (`docs/design/faults.md#deletion`).
fn decide_deletion(s: &ObservedMachine<'_>) -> Decision<MachineStep> {
    if s.twin.is_some() {
        // The VM belongs to the other WindowsMachine.
        return Decision::new(MachineStep::Release);
    }
    let Some(hypervisor) = chosen(s.object) else {
        return Decision::new(MachineStep::Release);
    };
    let deleting = Desired::yes(ConditionType::Deleting, Reason::Deleting);
    match (s.reach)(&hypervisor) {
        Reach::Reachable => {
            let key = key(s.object);
            Decision::new(MachineStep::Remove(Target { hypervisor, key, goal: Goal::Gone }))
        }
        Reach::Missing => {
            let message = format!(
                "the VM cannot be removed: WindowsHypervisor {hypervisor} is gone. Create it again; or, if the VM is certainly gone, remove the finalizer {FINALIZER} from this object"
            );
            stuck(Reason::HypervisorMissing, message.clone()).with_condition(deleting.with_message(message))
        }
        Reach::Unreachable(cause) => {
            let message = format!("the VM cannot be removed while WindowsHypervisor {hypervisor} is unreachable: {cause}");
            stuck(Reason::HypervisorUnreachable, message.clone()).with_condition(deleting.with_message(message))
        }
        Reach::Unchecked => Decision::new(MachineStep::Wait).requeue_after(Duration::from_secs(1)),
    }
}

/// The spec as drivers read it.
pub fn vm_spec(object: &WindowsMachine) -> Result<VmSpec, NameError> {
    let spec = &object.spec;
    let gib = |size: &str| mebibytes(size).map(|mib| mib >> 10);
    let firmware = spec.firmware.as_ref();
    Ok(VmSpec {
        image: spec.image.clone(),
        cpus: u32::try_from(spec.cpus).unwrap_or_default(),
        memory_mib: mebibytes(&spec.memory)?,
        system_disk_gib: spec.system_disk.as_deref().map(gib).transpose()?,
        disks: spec.disks.iter().map(|d| Ok(VmDisk { name: d.name.clone(), gib: gib(&d.size)? })).collect::<Result<_, NameError>>()?,
        nics: nics(object),
        uefi: firmware.is_none_or(|f| f.type_ == FirmwareType::Uefi),
        secure_boot: firmware.is_none_or(|f| f.secure_boot.unwrap_or(f.type_ == FirmwareType::Uefi)),
        tpm: firmware.is_some_and(|f| f.tpm),
        nested_virtualization: spec.nested_virtualization,
        host_name: host_name(object)?,
    })
}

/// One interface on the default network, unless the spec lists networks.
fn nics(object: &WindowsMachine) -> Vec<Nic> {
    let named = object.spec.networks.iter().map(|network| Some(network.name.clone()));
    let networks: Vec<Option<String>> = if object.spec.networks.is_empty() { vec![None] } else { named.collect() };
    networks.into_iter().enumerate().map(|(index, network)| Nic { network, mac: MacAddress::of(vm_uuid(object), index) }).collect()
}

fn unreachable(hypervisor: &str, reach: Reach, provisioned: bool) -> Decision<MachineStep> {
    let (why, message) = match reach {
        Reach::Missing => (Reason::HypervisorMissing, format!("WindowsHypervisor {hypervisor} is gone: create it again, the VM is still there")),
        Reach::Unreachable(cause) => (Reason::HypervisorUnreachable, format!("WindowsHypervisor {hypervisor} is unreachable: {cause}")),
        Reach::Unchecked | Reach::Reachable => return Decision::new(MachineStep::Wait).requeue_after(Duration::from_secs(1)),
    };
    if provisioned {
        // The node may still work: Ready stays, so that MachineHealthCheck does not replace machines because of a network outage.
        return Decision::new(MachineStep::Wait).with_condition(Desired::unknown(ConditionType::VirtualMachineReady, why, message));
    }
    stuck(why, message)
}

/// A wait. A provisioned machine stays Ready.
fn waiting(why: Reason, message: impl Into<String>, s: &ObservedMachine<'_>, now: Timestamp) -> Decision<MachineStep> {
    if is_provisioned(s.object) {
        return Decision::new(MachineStep::Wait);
    }
    crate::domain::decision::waiting(MachineStep::Wait, &s.object.metadata, why, message, now)
}

/// A problem that a person must fix.
fn stuck(why: Reason, message: impl Into<String>) -> Decision<MachineStep> {
    Decision::new(MachineStep::Wait).with_condition(Desired::no(ConditionType::Ready, why, message))
}

#[cfg(test)]
mod tests;
