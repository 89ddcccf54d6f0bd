//! ExternalControlPlane: reports the probed API server to Cluster API and users (`docs/design/cluster-api.md#external-control-plane`).

use std::time::Duration;

use crate::api::capi::Cluster;
use crate::api::cluster::ControlPlaneEndpoint;
use crate::api::condition::{ConditionType, Desired, Reason};
use crate::api::control_plane::{ExternalControlPlane, FINALIZER};
use crate::api::kubernetes_version::without_suffix;
use crate::domain::decision::Decision;
use crate::domain::gate::{has_finalizer, paused, paused_condition};

/// How often the API server is probed while it is available, and while it is not.
const PROBE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_secs(10);
/// The interval between two checks for remaining Machines.
const LEAVING: Duration = Duration::from_secs(5);

/// The observed state of a control plane.
pub struct ObservedControlPlane<'a> {
    pub object: &'a ExternalControlPlane,
    pub cluster: Option<&'a Cluster>,
    pub owned: bool,
    /// The number of Machines in the cluster.
    pub machines: usize,
    pub windows_side: WindowsSide,
    pub probe: Probe,
}

/// Whether what CAPW brought to the workload cluster for Windows nodes must still be removed with this kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowsSide {
    /// Not checked yet.
    Unseen,
    Gone,
    /// The WindowsCluster of this name has to remove it. The WindowsCluster gives up after a while.
    Leaving(String),
}

/// The result of probing the kubeconfig and its API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Not probed yet.
    None,
    /// The kubeconfig cannot be used. Reason and message state why.
    Failed {
        reason: Reason,
        message: String,
    },
    Answered(Answer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub version: String,
    /// The server that the kubeconfig names.
    pub server: ControlPlaneEndpoint,
    /// SHA-256 of the kubeconfig.
    pub digest: String,
    /// Identifies the cluster; `None` when it was not read because nothing changed.
    pub uid: Option<String>,
    /// The rights that the credentials lack; `None` when they were not checked because nothing changed.
    pub missing: Option<Vec<String>>,
    /// Whether `<cluster>-kubeconfig` and `<cluster>-ca` are up to date.
    pub secrets_current: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlPlaneStep {
    Ignore,
    Wait,
    /// Store the finalizer.
    Adopt,
    /// Check whether a WindowsCluster needs the kubeconfig.
    LookAtWindowsSide,
    /// Remove the finalizer: nothing needs the kubeconfig any more.
    Release,
    /// Read the kubeconfig and probe the API server.
    Probe,
    /// Store the Secrets that core reads, then report the result.
    Publish {
        answer: Answer,
        /// The value for `spec.controlPlaneEndpoint`, if that field is empty.
        endpoint: Option<ControlPlaneEndpoint>,
    },
}

pub fn decide(s: &ObservedControlPlane<'_>) -> Decision<ControlPlaneStep> {
    let meta = &s.object.metadata;
    let deleting = meta.deletion_timestamp.is_some();
    let ours = has_finalizer(meta, FINALIZER);
    if (deleting && !ours) || (!deleting && !s.owned) {
        return Decision::new(ControlPlaneStep::Ignore);
    }
    if let Some(why) = paused(meta, s.cluster.and_then(Cluster::paused_name)) {
        return Decision::new(ControlPlaneStep::Wait).with_condition(paused_condition(Some(why)));
    }
    if deleting {
        return leaving(s);
    }
    if s.cluster.is_none() {
        // A Cluster that does not exist (yet) may be paused.
        return Decision::new(ControlPlaneStep::Wait).requeue_after(LEAVING);
    }
    if !ours {
        return Decision::new(ControlPlaneStep::Adopt);
    }
    match &s.probe {
        Probe::None => Decision::new(ControlPlaneStep::Probe),
        Probe::Failed { reason, message } => unavailable(*reason, message).requeue_after(RETRY),
        Probe::Answered(answer) => answered(s, answer),
    }
}

/// Waits until nothing needs the kubeconfig. The Secrets carry an owner reference, so they are deleted with the object.
fn leaving(s: &ObservedControlPlane<'_>) -> Decision<ControlPlaneStep> {
    let message = match (s.machines, &s.windows_side) {
        (0, WindowsSide::Unseen) => return Decision::new(ControlPlaneStep::LookAtWindowsSide),
        (0, WindowsSide::Gone) => return Decision::new(ControlPlaneStep::Release),
        (0, WindowsSide::Leaving(name)) => format!("WindowsCluster {name} removes what CAPW brought to the workload cluster with its kubeconfig"),
        (machines, _) => format!("{machines} Machines of the cluster need it to be drained and to leave: delete them, or the Cluster"),
    };
    Decision::new(ControlPlaneStep::Wait)
        .with_condition(Desired::yes(ConditionType::Deleting, Reason::Deleting).with_message(message))
        .requeue_after(LEAVING)
}

fn answered(s: &ObservedControlPlane<'_>, answer: &Answer) -> Decision<ControlPlaneStep> {
    if let Some(missing) = answer.missing.as_ref().filter(|m| !m.is_empty()) {
        // The remedy comes first: an event is truncated at its end, and the list may be long.
        let message = format!("the credentials lack rights. Give their user these, or use another kubeconfig: {}", missing.join("; "));
        return unavailable(Reason::PermissionsMissing, &message).requeue_after(RETRY);
    }
    let known = s.object.status.as_ref().and_then(|status| status.cluster_uid.as_deref());
    if let (Some(known), Some(found)) = (known, answer.uid.as_deref())
        && known != found
    {
        let message = format!(
            "the API server at {} is that of another cluster: its namespace kube-system has the UID {found}, not {known}. Put the kubeconfig of the first cluster back; nodes cannot move to another one",
            answer.server.host
        );
        return unavailable(Reason::ClusterReplaced, &message).requeue_after(RETRY);
    }
    let endpoint = s.object.spec.control_plane_endpoint.is_none().then(|| answer.server.clone());
    Decision::new(ControlPlaneStep::Publish { answer: answer.clone(), endpoint })
        .with_condition(Desired::yes(ConditionType::Available, Reason::Reachable))
        .with_condition(Desired::yes(ConditionType::Ready, Reason::Reachable))
        .with_condition(version_reached(s.object.spec.version.as_deref(), &answer.version))
        .requeue_after(PROBE)
}

/// The Cluster repeats the messages of Available and Ready, so the version has a condition of its own.
fn version_reached(wanted: Option<&str>, answered: &str) -> Desired {
    match wanted.filter(|wanted| *wanted != comparable(answered, Some(wanted))) {
        None => Desired::yes(ConditionType::VersionReached, Reason::Reachable),
        Some(wanted) => {
            let message = format!(
                "spec.version is {wanted}, the API server reports {answered}: CAPW does not upgrade it, and Cluster API makes no Machines until they agree"
            );
            Desired::no(ConditionType::VersionReached, Reason::VersionDiffers, message)
        }
    }
}

/// The version in the form that Cluster API compares with `spec.version` and with the version of Machines. Cluster API sorts `v1.35.2-eks-1a2b3c`
/// before `v1.35.2`, and treats a control plane with a lower version than the desired one as being upgraded, without end.
pub(super) fn comparable(answered: &str, wanted: Option<&str>) -> String {
    let release = without_suffix(answered);
    match wanted {
        Some(wanted) if wanted == answered || without_suffix(wanted) == release => wanted.to_owned(),
        _ => release.to_owned(),
    }
}

fn unavailable(why: Reason, message: &str) -> Decision<ControlPlaneStep> {
    Decision::new(ControlPlaneStep::Wait).with_condition(Desired::no(ConditionType::Available, why, message)).with_condition(Desired::no(
        ConditionType::Ready,
        why,
        message,
    ))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::control_plane::StatusVersion;
    use crate::kinds::control_plane::report::status;

    #[test]
    fn another_cluster_behind_the_kubeconfig_is_refused_before_core_sees_it() {
        let object: ExternalControlPlane = serde_json::from_value(json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1",
            "kind": "ExternalControlPlane", "metadata": {"name": "c1", "finalizers": [FINALIZER]}, "spec": {}, "status": {"clusterUID": "a"}}))
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
            let publish = ControlPlaneStep::Publish { answer: answer.clone(), endpoint: Some(server.clone()) };
            let decision = decide(&ObservedControlPlane {
                object: &object,
                cluster: Some(&cluster),
                owned: true,
                machines: 0,
                windows_side: WindowsSide::Unseen,
                probe: Probe::Answered(answer),
            });
            (decision, publish)
        };
        for known in [Some("a"), None] {
            let (decision, publish) = step(known);
            assert_eq!(decision.step, publish, "{known:?}; none: it was not asked again");
        }
        let (refused, _) = step(Some("b"));
        assert_eq!(refused.step, ControlPlaneStep::Wait);
        assert!(refused.conditions.iter().all(|c| c.reason == Reason::ClusterReplaced), "{refused:?}");
    }

    #[test]
    fn it_stays_while_machines_or_a_windows_cluster_need_it() {
        let step = |metadata: Value, owned: bool, machines: usize, windows_side: WindowsSide| {
            let object: ExternalControlPlane = serde_json::from_value(json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1",
                "kind": "ExternalControlPlane", "metadata": metadata, "spec": {}}))
            .unwrap();
            let cluster: Cluster =
                serde_json::from_value(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1"}, "spec": {}}))
                    .unwrap();
            decide(&ObservedControlPlane { object: &object, cluster: Some(&cluster), owned, machines, windows_side, probe: Probe::None })
        };
        let (ours, gone) = (json!({"finalizers": [FINALIZER]}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let leaving = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let held = WindowsSide::Leaving("w1".into());
        for (metadata, owned, machines, windows_side, expected) in [
            (json!({}), false, 0, WindowsSide::Unseen, ControlPlaneStep::Ignore),
            (json!({}), true, 0, WindowsSide::Unseen, ControlPlaneStep::Adopt),
            (ours, true, 0, WindowsSide::Unseen, ControlPlaneStep::Probe),
            (gone, true, 1, WindowsSide::Unseen, ControlPlaneStep::Ignore),
            (leaving.clone(), true, 1, WindowsSide::Unseen, ControlPlaneStep::Wait),
            (leaving.clone(), true, 0, WindowsSide::Unseen, ControlPlaneStep::LookAtWindowsSide),
            (leaving.clone(), true, 0, held.clone(), ControlPlaneStep::Wait),
            (leaving.clone(), false, 0, WindowsSide::Gone, ControlPlaneStep::Release),
        ] {
            assert_eq!(step(metadata.clone(), owned, machines, windows_side.clone()).step, expected, "{metadata} {windows_side:?}");
        }
        for (machines, windows_side, part) in [(2, WindowsSide::Unseen, "2 Machines"), (0, held, "WindowsCluster w1 removes")] {
            let decision = step(leaving.clone(), true, machines, windows_side);
            let said = &decision.conditions[0];
            assert!(said.type_ == ConditionType::Deleting && said.message.contains(part), "{said:?}");
            assert!(decision.requeue_after.is_some(), "nothing tells when it is over");
        }
    }

    #[test]
    fn a_version_is_reported_as_cluster_api_can_compare_it() {
        for (wanted, answered, reported, reached) in [
            (None, "v1.35.2", "v1.35.2", true),
            (None, "v1.35.2-eks-1a2b3c", "v1.35.2", true),
            (Some("v1.35.2"), "v1.35.2-gke.1000", "v1.35.2", true),
            (Some("v1.35.2-gke.1000"), "v1.35.2-gke.1000", "v1.35.2-gke.1000", true),
            (Some("v1.35.2+k3s1"), "v1.35.2+k3s1", "v1.35.2+k3s1", true),
            (Some("v1.36.0"), "v1.35.2-eks-1a2b3c", "v1.35.2", false),
        ] {
            let object: ExternalControlPlane = serde_json::from_value(json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1",
                "kind": "ExternalControlPlane", "metadata": {"name": "c1"}, "spec": {"version": wanted}}))
            .unwrap();
            let answer = Answer {
                version: answered.into(),
                server: ControlPlaneEndpoint::default(),
                digest: "d".into(),
                uid: None,
                missing: None,
                secrets_current: true,
            };
            let status = status(&object, &[], Some(&answer), Timestamp::UNIX_EPOCH);
            assert_eq!(status.version.as_deref(), Some(reported), "{wanted:?} {answered}");
            assert_eq!(status.versions, [StatusVersion { version: reported.into() }], "{wanted:?} {answered}");
            let said = version_reached(wanted, answered);
            assert_eq!((said.status, said.message.is_empty()), (Some(reached), reached), "{said:?}");
        }
    }
}
