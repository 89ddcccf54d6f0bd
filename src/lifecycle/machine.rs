//! WindowsMachine, first half: may the hypervisor be asked at all, and which? (`capi-contract.md` §1.8, steps 1 to 7.)
//!
//! The second half, once the hypervisor has answered, is [`super::vm`].

use std::time::Duration;

use jiff::Timestamp;

use super::{Decision, Gate, Owner, paused_condition};
use crate::api::capi::Cluster;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::machine::{FINALIZER, FirmwareType, WindowsMachine};
use crate::api::name::{HostName, NameError, ProviderId, VmUuid, mebibytes};
use crate::api::pool::made_for;
use crate::vm::{MachineKey, VmDisk, VmSpec};

/// The hypervisor chosen for a machine; set together with the finalizer, before the first call, and never changed.
pub const HYPERVISOR_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/windows-hypervisor";

/// Everything that is known before a hypervisor is asked.
pub struct Situation<'a> {
    pub object: &'a WindowsMachine,
    pub owner: Owner<'a>,
    pub cluster: Option<&'a Cluster>,
    /// Names of the WindowsHypervisors in the namespace.
    pub hypervisors: &'a [String],
    /// State of the chosen one.
    pub reach: &'a (dyn Fn(&str) -> Reach + Sync),
}

/// What is known of a hypervisor without asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Missing,
    /// Nobody has asked it yet.
    Unchecked,
    Unreachable(String),
    Reachable,
}

/// What may be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Not ours (yet): nothing may be written, not even status.
    Ignore,
    /// Nothing but the report.
    Wait,
    /// Store the finalizer and the choice of hypervisor, in one write.
    Adopt { hypervisor: String },
    /// Ask the hypervisor, then decide with [`super::vm`].
    Ask(Target),
    /// The finalizer is there but no VM can be: it was never adopted.
    Release,
}

/// Which VM on which hypervisor.
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
    /// Nothing is left of it.
    Gone,
}

/// May the hypervisor be asked, and for what?
pub fn decide(s: &Situation<'_>, now: Timestamp) -> Decision<Step> {
    match Gate::of(&s.object.metadata, FINALIZER, &s.owner, s.cluster) {
        Gate::Closed => Decision::new(Step::Ignore),
        Gate::Paused(why) => Decision::new(Step::Wait).say(paused_condition(Some(why))),
        Gate::Leaving => decide_deletion(s),
        Gate::Open { ours } => decide_life(s, ours, now),
    }
}

fn decide_life(s: &Situation<'_>, ours: bool, now: Timestamp) -> Decision<Step> {
    let Some(owner) = s.owner.machine() else {
        return waiting(Reason::WaitingForClusterInfrastructureReady, "its Machine is not there (yet)", s, now);
    };
    let Some(cluster) = s.cluster else {
        return waiting(Reason::WaitingForClusterInfrastructureReady, "its Cluster is not there (yet)", s, now);
    };
    if owner.is_control_plane() {
        return stuck(Reason::ControlPlaneMachineRefused, "Windows cannot run a control plane: use WindowsMachineTemplate for workers only");
    }
    let hypervisor = match choose_hypervisor(s) {
        Ok(name) => name,
        Err(message) => return stuck(Reason::HypervisorMissing, message).look_again(Duration::from_secs(60)),
    };
    let spec = match vm_spec(s.object) {
        Ok(spec) => spec,
        Err(error @ NameError::HostNameTooLong { .. }) => return stuck(Reason::HostNameTooLong, format!("metadata.name: {error}")),
        Err(error) => return stuck(Reason::InvalidSpec, error.to_string()),
    };
    if !ours {
        return Decision::new(Step::Adopt { hypervisor });
    }
    let provisioned = is_provisioned(s.object);
    if !provisioned && !cluster.infrastructure_provisioned() {
        return waiting(
            Reason::WaitingForClusterInfrastructureReady,
            format!("Cluster {} reports no infrastructure yet", owner.spec.cluster_name),
            s,
            now,
        );
    }
    let Some(secret) = owner.spec.bootstrap.data_secret_name.clone().filter(|n| !n.is_empty()) else {
        return if cluster.control_plane_initialized() {
            waiting(
                Reason::WaitingForBootstrapData,
                format!("Machine {} has no bootstrap data yet; see its bootstrap configuration", name(&owner.metadata)),
                s,
                now,
            )
        } else {
            waiting(
                Reason::WaitingForControlPlaneInitialized,
                format!("the control plane of Cluster {} is not initialized", owner.spec.cluster_name),
                s,
                now,
            )
        };
    };
    match (s.reach)(&hypervisor) {
        Reach::Reachable => {
            let goal = Goal::Run { spec: Box::new(spec), secret };
            Decision::new(Step::Ask(Target { hypervisor, key: key(s.object), goal }))
        }
        reach => unreachable(&hypervisor, reach, provisioned),
    }
}

/// Deletion needs nothing but the object itself and its hypervisor (`reliability-performance.md` §2.3 rule 5).
fn decide_deletion(s: &Situation<'_>) -> Decision<Step> {
    let Some(hypervisor) = chosen(s.object) else {
        return Decision::new(Step::Release);
    };
    let deleting = Desired::yes(ConditionType::Deleting, Reason::Deleting);
    match (s.reach)(&hypervisor) {
        Reach::Reachable => {
            let key = key(s.object);
            Decision::new(Step::Ask(Target { hypervisor, key, goal: Goal::Gone }))
        }
        Reach::Missing => {
            let message = format!(
                "the VM cannot be removed: WindowsHypervisor {hypervisor} is gone. Create it again; or, if the VM is certainly gone, remove the finalizer {FINALIZER} from this object"
            );
            stuck(Reason::HypervisorMissing, message.clone()).say(deleting.with_message(message))
        }
        Reach::Unreachable(cause) => {
            let message = format!("the VM cannot be removed while WindowsHypervisor {hypervisor} is unreachable: {cause}");
            stuck(Reason::HypervisorUnreachable, message.clone()).say(deleting.with_message(message))
        }
        Reach::Unchecked => Decision::new(Step::Wait).look_again(Duration::from_secs(1)),
    }
}

/// The hypervisor of a machine: what was chosen before, else the Machine's failure domain, else the spec, else the only one.
fn choose_hypervisor(s: &Situation<'_>) -> Result<String, String> {
    if let Some(name) = chosen(s.object) {
        return Ok(name);
    }
    let exists = |name: &str| s.hypervisors.iter().any(|h| h == name);
    let domain = s.owner.machine().and_then(|m| m.spec.failure_domain.clone()).filter(|d| !d.is_empty());
    if let Some(domain) = domain {
        return if exists(&domain) {
            Ok(domain)
        } else {
            Err(format!("Machine spec.failureDomain: there is no WindowsHypervisor {domain:?} in this namespace ({})", listed(s.hypervisors)))
        };
    }
    match (&s.object.spec.hypervisor_ref, s.hypervisors) {
        (Some(reference), _) if exists(&reference.name) => Ok(reference.name.clone()),
        (Some(reference), _) => {
            Err(format!("spec.hypervisorRef.name: there is no WindowsHypervisor {:?} in this namespace ({})", reference.name, listed(s.hypervisors)))
        }
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            Err(format!("spec.hypervisorRef: name one, as this namespace has not exactly one WindowsHypervisor ({})", listed(s.hypervisors)))
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "there is none".into() } else { format!("there are: {}", names.join(", ")) }
}

/// The hypervisor that was chosen for this machine, if it was adopted: the annotation, or what its provider ID says.
pub fn chosen(object: &WindowsMachine) -> Option<String> {
    let annotated = object.metadata.annotations.as_ref().and_then(|a| a.get(HYPERVISOR_ANNOTATION)).cloned();
    annotated.or_else(|| provider_id(object).map(|id| id.hypervisor))
}

/// The provider ID in the spec, if it is one of ours.
pub fn provider_id(object: &WindowsMachine) -> Option<ProviderId> {
    object.spec.provider_id.as_deref().and_then(|id| ProviderId::parse(id).ok())
}

/// The provider ID that the machine has or will have, once its hypervisor is chosen.
pub fn future_provider_id(object: &WindowsMachine) -> Option<ProviderId> {
    Some(ProviderId { hypervisor: chosen(object)?, vm: vm_uuid(object) })
}

/// Identity of the VM: from the provider ID once there is one (it survives `clusterctl move`), else computed from the UID.
pub fn vm_uuid(object: &WindowsMachine) -> VmUuid {
    provider_id(object).map_or_else(|| VmUuid::of(object.metadata.uid.as_deref().unwrap_or_default()), |id| id.vm)
}

/// Host name of the VM and name of its Node.
pub fn host_name(object: &WindowsMachine) -> Result<HostName, NameError> {
    HostName::choose(name(&object.metadata), vm_uuid(object), object.spec.host_name)
}

/// Which VM belongs to the object.
pub fn key(object: &WindowsMachine) -> MachineKey {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let cluster = made_for(&object.metadata).unwrap_or_default();
    MachineKey { vm: vm_uuid(object), cluster: format!("{namespace}/{cluster}"), name: name(&object.metadata).into() }
}

/// The spec in the words of drivers.
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
        networks: spec.networks.iter().map(|n| n.name.clone()).collect(),
        uefi: firmware.is_none_or(|f| f.type_ == FirmwareType::Uefi),
        secure_boot: firmware.is_none_or(|f| f.secure_boot),
        tpm: firmware.is_some_and(|f| f.tpm),
        nested_virtualization: spec.nested_virtualization,
        host_name: host_name(object)?,
    })
}

/// True once Cluster API was told so; it is never taken back.
pub fn is_provisioned(object: &WindowsMachine) -> bool {
    object.status.as_ref().and_then(|s| s.initialization.as_ref()).and_then(|i| i.provisioned) == Some(true)
}

fn unreachable(hypervisor: &str, reach: Reach, provisioned: bool) -> Decision<Step> {
    let (why, message) = match reach {
        Reach::Missing => (Reason::HypervisorMissing, format!("WindowsHypervisor {hypervisor} is gone: create it again, the VM is still there")),
        Reach::Unreachable(cause) => (Reason::HypervisorUnreachable, format!("WindowsHypervisor {hypervisor} is unreachable: {cause}")),
        Reach::Unchecked | Reach::Reachable => return Decision::new(Step::Wait).look_again(Duration::from_secs(1)),
    };
    if provisioned {
        // The node may well be fine: Ready stays, so that MachineHealthCheck does not replace machines because of a network cut.
        return Decision::new(Step::Wait).say(Desired::unknown(ConditionType::VirtualMachineReady, why, message));
    }
    stuck(why, message)
}

/// A machine that is provisioned stays Ready whatever is waited for.
fn waiting(why: Reason, message: impl Into<String>, s: &Situation<'_>, now: Timestamp) -> Decision<Step> {
    if is_provisioned(s.object) {
        return Decision::new(Step::Wait);
    }
    super::waiting(Step::Wait, &s.object.metadata, why, message, now)
}

/// Something that a person must mend.
fn stuck(why: Reason, message: impl Into<String>) -> Decision<Step> {
    Decision::new(Step::Wait).say(Desired::no(ConditionType::Ready, why, message))
}

fn name(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
