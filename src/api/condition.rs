//! Everything users can be told: condition types, reasons, and the one rule by which a condition changes.
//!
//! Types are positive (`True` is good) except [`PAUSED`] and [`DELETING`], which core names so.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The whole object, for its whole life. Core mirrors it to the Machine or the Cluster.
pub const READY: &str = "Ready";
/// `True` while the Cluster or the object is paused.
pub const PAUSED: &str = "Paused";
/// `True` from the deletion request until the finalizer is gone.
pub const DELETING: &str = "Deleting";
/// WindowsMachine: the VM exists, has its config drive and runs.
pub const VIRTUAL_MACHINE_READY: &str = "VirtualMachineReady";
/// WindowsMachine: the Node of this machine has appeared in the workload cluster.
pub const NODE_JOINED: &str = "NodeJoined";
/// WindowsMachine: said only when the hypervisor cannot take the seed away after the join.
pub const SEED_DETACHED: &str = "SeedDetached";
/// WindowsBootstrapConfig: the bootstrap Secret exists.
pub const DATA_SECRET_AVAILABLE: &str = "DataSecretAvailable";
/// WindowsBootstrapConfig: the join credential (a bootstrap token) is usable or is no longer needed.
pub const JOIN_CREDENTIAL_VALID: &str = "JoinCredentialValid";
/// ExternalControlPlane: the API server answers and the credentials may do what is needed.
pub const AVAILABLE: &str = "Available";
/// WindowsNodePool: every machine was made from the template as it is now.
pub const MACHINES_UP_TO_DATE: &str = "MachinesUpToDate";
/// WindowsHypervisor: the endpoint answers and accepts the credentials.
pub const REACHABLE: &str = "Reachable";

/// Reasons, as constants so that documentation, tests and alerts can name them.
pub mod reason {
    pub const READY: &str = "Ready";
    pub const PAUSED: &str = "Paused";
    pub const NOT_PAUSED: &str = "NotPaused";
    pub const DELETING: &str = "Deleting";
    pub const NOT_DELETING: &str = "NotDeleting";
    pub const DRAINING_NODE: &str = "DrainingNode";
    pub const DRAIN_GIVEN_UP: &str = "DrainGivenUp";
    pub const PROVISIONED: &str = "Provisioned";
    pub const PROVISIONING: &str = "Provisioning";
    pub const WAITING_FOR_CLUSTER: &str = "WaitingForClusterInfrastructureReady";
    pub const WAITING_FOR_CONTROL_PLANE: &str = "WaitingForControlPlaneInitialized";
    pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";
    pub const BOOTSTRAP_SECRET_MISSING: &str = "BootstrapSecretMissing";
    pub const CONTROL_PLANE_MACHINE_REFUSED: &str = "ControlPlaneMachineRefused";
    pub const HYPERVISOR_MISSING: &str = "HypervisorMissing";
    pub const HYPERVISOR_UNREACHABLE: &str = "HypervisorUnreachable";
    pub const HYPERVISOR_NOT_CHECKED: &str = "HypervisorNotCheckedYet";
    pub const INVALID_SPEC: &str = "InvalidSpec";
    pub const INCOMPATIBLE: &str = "Incompatible";
    pub const HOST_NAME_TOO_LONG: &str = "HostNameTooLong";
    pub const PAYLOAD_TOO_LARGE: &str = "PayloadTooLarge";
    pub const IMAGE_MISSING: &str = "ImageMissing";
    pub const NO_CAPACITY: &str = "NoCapacity";
    pub const REFUSED_BY_HYPERVISOR: &str = "RefusedByHypervisor";
    pub const UNAUTHORIZED: &str = "Unauthorized";
    pub const FOREIGN_VIRTUAL_MACHINE: &str = "ForeignVirtualMachine";
    pub const VIRTUAL_MACHINE_REMOVED: &str = "VirtualMachineRemoved";
    pub const VIRTUAL_MACHINE_OFF: &str = "VirtualMachineOff";
    pub const JOINED: &str = "Joined";
    pub const JOINING: &str = "Joining";
    pub const NOT_STARTED: &str = "NotStarted";
    pub const SEED_STAYS: &str = "SeedStays";
    pub const NODE_NEVER_JOINED: &str = "NodeNeverJoined";
    pub const BOOTSTRAP_INPUT_INVALID: &str = "BootstrapInputInvalid";
    pub const WINDOWS_SETUP_FAILED: &str = "WindowsSetupFailed";
    pub const NODE_NETWORK_FAILED: &str = "NodeNetworkFailed";
    pub const PROGRAMS_UNAVAILABLE: &str = "ProgramsUnavailable";
    pub const CONTAINER_RUNTIME_FAILED: &str = "ContainerRuntimeFailed";
    pub const POD_NETWORK_FAILED: &str = "PodNetworkFailed";
    pub const JOIN_FAILED: &str = "JoinFailed";
    pub const SERVICE_NETWORK_FAILED: &str = "ServiceNetworkFailed";
    pub const ADD_ON_FAILED: &str = "AddOnFailed";
    pub const GUEST_FAILED: &str = "GuestFailed";
    pub const TOKEN_VALID: &str = "TokenValid";
    pub const TOKEN_EXPIRED: &str = "TokenExpired";
    pub const TOKEN_USED: &str = "TokenUsed";
    pub const WORKLOAD_UNREACHABLE: &str = "WorkloadClusterUnreachable";
    pub const WORKLOAD_FORBIDDEN: &str = "WorkloadClusterForbidden";
    pub const WORKLOAD_KUBECONFIG_MISSING: &str = "KubeconfigMissing";
    pub const KUBECONFIG_INVALID: &str = "KubeconfigInvalid";
    pub const ENDPOINT_UNREACHABLE: &str = "EndpointUnreachable";
    pub const CREDENTIALS_REJECTED: &str = "CredentialsRejected";
    pub const PERMISSIONS_MISSING: &str = "PermissionsMissing";
    pub const SECRET_MISSING: &str = "SecretMissing";
    pub const SECRET_CONFLICT: &str = "SecretConflict";
    pub const REACHABLE: &str = "Reachable";
    pub const SCALING_UP: &str = "ScalingUp";
    pub const SCALING_DOWN: &str = "ScalingDown";
    pub const REPLACING: &str = "ReplacingUnhealthy";
    pub const MACHINES_FAILED: &str = "MachinesFailed";
    pub const TOO_MANY_UNHEALTHY: &str = "TooManyUnhealthy";
    pub const UP_TO_DATE: &str = "UpToDate";
    pub const ROLLING_OUT: &str = "RollingOut";
    pub const ROLLOUT_STOPPED: &str = "RolloutStopped";
    pub const TEMPLATE_MISSING: &str = "TemplateMissing";
    pub const MACHINES_REFUSED: &str = "MachinesRefused";
    pub const INTERNAL_ERROR: &str = "InternalError";
}

/// Reasons of NodeJoined when the guest gave up, one for each group of failure codes; the last one for any
/// other code.
pub const GUEST_GAVE_UP: [&str; 10] = {
    use reason::*;
    [
        BOOTSTRAP_INPUT_INVALID,
        WINDOWS_SETUP_FAILED,
        NODE_NETWORK_FAILED,
        PROGRAMS_UNAVAILABLE,
        CONTAINER_RUNTIME_FAILED,
        POD_NETWORK_FAILED,
        JOIN_FAILED,
        SERVICE_NETWORK_FAILED,
        ADD_ON_FAILED,
        GUEST_FAILED,
    ]
};

/// True for reasons that somebody should look into: they become Warning events. The others are stages of an ordinary life.
pub fn is_problem(reason: &str) -> bool {
    use reason::*;
    let ours = [
        BOOTSTRAP_SECRET_MISSING,
        CONTROL_PLANE_MACHINE_REFUSED,
        HYPERVISOR_MISSING,
        HYPERVISOR_UNREACHABLE,
        INVALID_SPEC,
        INCOMPATIBLE,
        HOST_NAME_TOO_LONG,
        PAYLOAD_TOO_LARGE,
        IMAGE_MISSING,
        NO_CAPACITY,
        REFUSED_BY_HYPERVISOR,
        UNAUTHORIZED,
        FOREIGN_VIRTUAL_MACHINE,
        VIRTUAL_MACHINE_REMOVED,
        VIRTUAL_MACHINE_OFF,
        SEED_STAYS,
        NODE_NEVER_JOINED,
        TOKEN_EXPIRED,
        WORKLOAD_UNREACHABLE,
        WORKLOAD_FORBIDDEN,
        WORKLOAD_KUBECONFIG_MISSING,
        KUBECONFIG_INVALID,
        ENDPOINT_UNREACHABLE,
        CREDENTIALS_REJECTED,
        PERMISSIONS_MISSING,
        SECRET_MISSING,
        SECRET_CONFLICT,
        TOO_MANY_UNHEALTHY,
        MACHINES_FAILED,
        ROLLOUT_STOPPED,
        TEMPLATE_MISSING,
        MACHINES_REFUSED,
        DRAIN_GIVEN_UP,
        INTERNAL_ERROR,
    ];
    ours.contains(&reason) || GUEST_GAVE_UP.contains(&reason)
}

/// A condition as a decision states it; [`apply`] gives it its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub type_: &'static str,
    /// `Some(true)` is `True`, `Some(false)` is `False`, `None` is `Unknown`.
    pub status: Option<bool>,
    pub reason: &'static str,
    pub message: String,
}

impl Desired {
    pub fn yes(type_: &'static str, reason: &'static str) -> Self {
        Self { type_, status: Some(true), reason, message: String::new() }
    }
    pub fn no(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Some(false), reason, message: message.into() }
    }
    pub fn unknown(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: None, reason, message: message.into() }
    }
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }
}

/// `current` with every condition of `desired` set: the transition time moves only when the status does, and conditions that
/// `desired` does not name stay. The order is by type, so that equal sets are equal lists.
pub fn apply(current: &[Condition], desired: &[Desired], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let mut next: Vec<Condition> = current.to_vec();
    for want in desired {
        let status = match want.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let since = find(current, want.type_).filter(|had| had.status == status);
        let condition = Condition {
            type_: want.type_.into(),
            status: status.into(),
            reason: want.reason.into(),
            message: want.message.clone(),
            observed_generation: generation,
            last_transition_time: since
                .map_or_else(|| Time(Timestamp::from_second(now.as_second()).unwrap_or(now)), |had| had.last_transition_time.clone()),
        };
        match next.iter_mut().find(|c| c.type_ == want.type_) {
            Some(slot) => *slot = condition,
            None => next.push(condition),
        }
    }
    next.sort_by(|a, b| a.type_.cmp(&b.type_));
    next
}

/// The condition of that type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// True when the condition exists and is `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let first = apply(&[], &[Desired::no(READY, reason::PROVISIONING, "a")], Some(1), at(10));
        let reworded = apply(&first, &[Desired::no(READY, reason::IMAGE_MISSING, "b")], Some(2), at(20));
        assert_eq!(reworded[0].last_transition_time.0, at(10));
        assert_eq!((reworded[0].reason.as_str(), reworded[0].observed_generation), (reason::IMAGE_MISSING, Some(2)));
        let flipped = apply(&reworded, &[Desired::yes(READY, reason::READY)], Some(2), at(30));
        assert_eq!(flipped[0].last_transition_time.0, at(30));
    }

    #[test]
    fn conditions_that_nobody_names_stay_and_the_order_is_stable() {
        let one = apply(&[], &[Desired::yes(READY, reason::READY), Desired::no(PAUSED, reason::NOT_PAUSED, "")], None, at(1));
        let two = apply(&one, &[Desired::no(DELETING, reason::NOT_DELETING, "")], None, at(2));
        assert_eq!(two.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), [DELETING, PAUSED, READY]);
        assert_eq!(apply(&two, &[Desired::yes(READY, reason::READY)], None, at(3)), two);
    }
}
