//! The faults that prevent the use of a workload cluster, as reasons of a condition.

use crate::api::condition::Reason;

/// A fault that lasts until a person fixes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KubeconfigMissing,
    KubeconfigInvalid,
    Unreachable,
    Unauthorized,
    Forbidden,
    /// A foreign object has the name of an object that CAPW creates there.
    Foreign,
    /// The cluster is not the one that machines were created for.
    Replaced,
    /// The namespace may not use the cluster that CAPW runs in.
    OwnClusterRefused,
    /// The API server's answer is larger than CAPW reads.
    TooLarge,
}

impl Fault {
    /// Returns the reason on objects that use the cluster.
    pub fn reason(self) -> Reason {
        match self {
            Self::KubeconfigMissing => Reason::KubeconfigMissing,
            Self::KubeconfigInvalid => Reason::KubeconfigInvalid,
            Self::Unreachable => Reason::WorkloadClusterUnreachable,
            Self::Unauthorized => Reason::CredentialsRejected,
            Self::Forbidden => Reason::WorkloadClusterForbidden,
            Self::Foreign => Reason::SecretConflict,
            Self::Replaced => Reason::ClusterReplaced,
            Self::OwnClusterRefused => Reason::OwnClusterRefused,
            Self::TooLarge => Reason::WorkloadClusterTooLarge,
        }
    }

    /// Returns the reason on an ExternalControlPlane, which represents the API server itself.
    pub fn control_plane_reason(self) -> Reason {
        match self {
            Self::Unreachable => Reason::EndpointUnreachable,
            Self::Forbidden => Reason::PermissionsMissing,
            other => other.reason(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_external_control_plane_speaks_of_its_endpoint_and_permissions() {
        let all = [Fault::KubeconfigMissing, Fault::KubeconfigInvalid, Fault::Unreachable, Fault::Unauthorized, Fault::Forbidden, Fault::Foreign];
        let differ: Vec<Fault> = all.into_iter().filter(|fault| fault.reason() != fault.control_plane_reason()).collect();
        assert_eq!(differ, [Fault::Unreachable, Fault::Forbidden]);
        assert_eq!(Fault::Unreachable.control_plane_reason(), Reason::EndpointUnreachable);
        assert_eq!(Fault::Forbidden.control_plane_reason(), Reason::PermissionsMissing);
    }
}
