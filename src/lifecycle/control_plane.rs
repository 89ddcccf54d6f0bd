//! ExternalControlPlane: what a look at the API server means for Cluster API and for people (`docs/design/cluster-api.md#external-control-plane`).

use std::time::Duration;

use jiff::Timestamp;

use super::conditions::conditions;
use super::{Decision, paused, paused_condition};
use crate::api::capi::Cluster;
use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::control_plane::{ControlPlaneInitialization, ExternalControlPlane, ExternalControlPlaneStatus};

/// How often the API server is asked when all is well, and when it is not.
const PROBE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_secs(10);

/// What was found.
pub struct ObservedControlPlane<'a> {
    pub object: &'a ExternalControlPlane,
    pub cluster: Option<&'a Cluster>,
    pub owned: bool,
    pub probe: Probe,
}

/// One look at the kubeconfig and the API server behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Not looked yet.
    None,
    /// It cannot be used; reason and text say why.
    Failed {
        reason: Reason,
        message: String,
    },
    Answered(Answer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub version: String,
    /// The server of the kubeconfig.
    pub server: ControlPlaneEndpoint,
    /// SHA-256 of the kubeconfig.
    pub digest: String,
    /// What the credentials may not do; `None` when that was not asked because nothing changed.
    pub missing: Option<Vec<String>>,
    /// `<cluster>-kubeconfig` and `<cluster>-ca` are as they should be.
    pub secrets_current: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlPlaneStep {
    Ignore,
    Wait,
    /// Look at the kubeconfig and the API server.
    Probe,
    /// Write the two Secrets that core and others read.
    WriteSecrets,
    /// Store `spec.controlPlaneEndpoint`.
    SetEndpoint(ControlPlaneEndpoint),
    /// Report what was found.
    Report(Answer),
}

pub fn decide(s: &ObservedControlPlane<'_>) -> Decision<ControlPlaneStep> {
    let meta = &s.object.metadata;
    if meta.deletion_timestamp.is_some() || !s.owned {
        // The Secrets carry an owner reference: they go with the object.
        return Decision::new(ControlPlaneStep::Ignore);
    }
    if let Some(why) = paused(meta, s.cluster.and_then(Cluster::paused_name)) {
        return Decision::new(ControlPlaneStep::Wait).say(paused_condition(Some(why)));
    }
    match &s.probe {
        Probe::None => Decision::new(ControlPlaneStep::Probe),
        Probe::Failed { reason, message } => unavailable(*reason, message).look_again(RETRY),
        Probe::Answered(answer) => answered(s, answer),
    }
}

fn answered(s: &ObservedControlPlane<'_>, answer: &Answer) -> Decision<ControlPlaneStep> {
    if let Some(missing) = answer.missing.as_ref().filter(|m| !m.is_empty()) {
        let message = format!("the credentials may not: {}. Give their user these rights, or use another kubeconfig", missing.join("; "));
        return unavailable(Reason::PermissionsMissing, &message).look_again(RETRY);
    }
    if !answer.secrets_current {
        return Decision::new(ControlPlaneStep::WriteSecrets);
    }
    if s.object.spec.control_plane_endpoint.is_none() {
        return Decision::new(ControlPlaneStep::SetEndpoint(answer.server.clone()));
    }
    let wanted = s.object.spec.version.as_deref();
    let behind = wanted.filter(|w| *w != answer.version);
    let note =
        behind.map(|w| format!("spec.version is {w}, the API server reports {}; CAPW does not upgrade it", answer.version)).unwrap_or_default();
    Decision::new(ControlPlaneStep::Report(answer.clone()))
        .say(Desired::yes(ConditionType::Available, Reason::Reachable).with_message(note.clone()))
        .say(Desired::yes(ConditionType::Ready, Reason::Reachable).with_message(note))
        .look_again(PROBE)
}

fn unavailable(why: Reason, message: &str) -> Decision<ControlPlaneStep> {
    Decision::new(ControlPlaneStep::Wait).say(Desired::no(ConditionType::Available, why, message)).say(Desired::no(
        ConditionType::Ready,
        why,
        message,
    ))
}

/// Status of an ExternalControlPlane: `answer` is version and digest of the kubeconfig once the API server has answered.
pub fn status(object: &ExternalControlPlane, said: &[Desired], answer: Option<(&str, &str)>, now: Timestamp) -> ExternalControlPlaneStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.conditions = conditions(&status.conditions, said, object.metadata.generation, now);
    status.external_managed_control_plane = Some(true);
    if let Some((version, digest)) = answer {
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: Some(true) });
        status.version = Some(version.to_owned());
        status.checked_kubeconfig = Some(digest.to_owned());
    }
    status
}
