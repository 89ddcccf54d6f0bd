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
    /// What tells the cluster from every other; `None` when that was not asked because nothing changed.
    pub uid: Option<String>,
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
    let known = s.object.status.as_ref().and_then(|status| status.cluster_uid.as_deref());
    if let (Some(known), Some(found)) = (known, answer.uid.as_deref())
        && known != found
    {
        let message = format!(
            "the API server at {} is that of another cluster: its namespace kube-system has the UID {found}, not {known}. Put the kubeconfig of the first cluster back; nodes cannot move to another one",
            answer.server.host
        );
        return unavailable(Reason::ClusterReplaced, &message).look_again(RETRY);
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

/// Status of an ExternalControlPlane: `answer` once the API server has answered.
pub fn status(object: &ExternalControlPlane, said: &[Desired], answer: Option<&Answer>, now: Timestamp) -> ExternalControlPlaneStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.conditions = conditions(&status.conditions, said, object.metadata.generation, now);
    status.external_managed_control_plane = Some(true);
    if let Some(answer) = answer {
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: Some(true) });
        status.version = Some(answer.version.clone());
        status.checked_kubeconfig = Some(answer.digest.clone());
        status.cluster_uid = answer.uid.clone().or(status.cluster_uid);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn another_cluster_behind_the_kubeconfig_is_refused_before_core_sees_it() {
        let object: ExternalControlPlane = serde_json::from_value(json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1",
            "kind": "ExternalControlPlane", "metadata": {"name": "c1"}, "spec": {}, "status": {"clusterUID": "a"}}))
        .unwrap();
        let cluster =
            serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1"}, "spec": {}}));
        let cluster: Cluster = cluster.unwrap();
        let server = ControlPlaneEndpoint { host: "10.0.0.1".into(), port: 6443 };
        let step = |uid: Option<&str>| {
            let answer = Answer {
                version: "v1.36.3".into(),
                server: server.clone(),
                digest: "d".into(),
                uid: uid.map(Into::into),
                missing: None,
                secrets_current: false,
            };
            decide(&ObservedControlPlane { object: &object, cluster: Some(&cluster), owned: true, probe: Probe::Answered(answer) })
        };
        assert_eq!(step(Some("a")).step, ControlPlaneStep::WriteSecrets);
        assert_eq!(step(None).step, ControlPlaneStep::WriteSecrets, "it was not asked again");
        let refused = step(Some("b"));
        assert_eq!(refused.step, ControlPlaneStep::Wait);
        assert!(refused.conditions.iter().all(|c| c.reason == Reason::ClusterReplaced), "{refused:?}");
    }
}
