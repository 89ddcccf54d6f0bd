//! The status of an ExternalControlPlane.

use jiff::Timestamp;

use super::decide::{Answer, comparable};
use crate::api::condition::Desired;
use crate::api::control_plane::{ControlPlaneInitialization, ExternalControlPlane, ExternalControlPlaneStatus, StatusVersion};
use crate::domain::conditions::carry_over;

/// The next status of an ExternalControlPlane. `answer` is set once the API server has answered.
pub fn status(object: &ExternalControlPlane, said: &[Desired], answer: Option<&Answer>, now: Timestamp) -> ExternalControlPlaneStatus {
    let mut status = object.status.clone().unwrap_or_default();
    (status.conditions, status.observed_generation) =
        carry_over(&status.conditions, status.observed_generation, said, object.metadata.generation, now);
    status.external_managed_control_plane = Some(true);
    if let Some(answer) = answer {
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: Some(true) });
        let version = comparable(&answer.version, object.spec.version.as_deref());
        status.versions = vec![StatusVersion { version: version.clone() }];
        status.version = Some(version);
        status.checked_kubeconfig = Some(answer.digest.clone());
        status.cluster_uid = answer.uid.clone().or(status.cluster_uid);
    }
    status
}
