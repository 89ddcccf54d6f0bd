//! The reports after the data or the token was created, or could not be; and when a configuration may be released.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::domain::decision::Decision;
use crate::domain::fault::Fault;

/// A fault that a person can fix outside the configuration is checked again after this time.
const RECHECK: Duration = Duration::from_secs(10);

/// Why the bootstrap data cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataProblem {
    TooLarge,
    Incompatible,
    InvalidSpec,
    /// A Secret or ConfigMap that the spec names does not exist, or lacks a key.
    ValueMissing,
    /// A Secret of another owner has the name of the bootstrap Secret.
    SecretTaken,
    Cluster(Fault),
}

pub fn not_made(problem: DataProblem, message: String) -> Decision<()> {
    let (why, requeue_after) = match problem {
        DataProblem::TooLarge => (Reason::PayloadTooLarge, None),
        DataProblem::Incompatible => (Reason::Incompatible, None),
        DataProblem::InvalidSpec => (Reason::InvalidSpec, None),
        DataProblem::ValueMissing => (Reason::SecretMissing, Some(RECHECK)),
        DataProblem::SecretTaken => (Reason::SecretConflict, Some(RECHECK)),
        DataProblem::Cluster(fault) => (fault.reason(), Some(RECHECK)),
    };
    Decision { step: (), conditions: vec![Desired::no(ConditionType::Ready, why, message)], requeue_after }
}

/// Whether the last report was that a Secret of another owner has the name. That Secret is then read before anything is written.
pub fn was_taken(object: &WindowsBootstrapConfig) -> bool {
    let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::Ready).is_some_and(|ready| ready.reason == Reason::SecretConflict)
}

/// Token and Secret exist. `warnings` come from the rules; empty if there are none.
pub fn made(warnings: String) -> Decision<()> {
    Decision::new(())
        .with_condition(Desired::yes(ConditionType::DataSecretAvailable, Reason::Ready).with_message(warnings))
        .with_condition(token_valid())
        .with_condition(Desired::yes(ConditionType::Ready, Reason::Ready))
}

/// The Machine already has its data.
pub fn restored() -> Decision<()> {
    Decision::new(())
        .with_condition(Desired::yes(ConditionType::DataSecretAvailable, Reason::Ready))
        .with_condition(Desired::yes(ConditionType::Ready, Reason::Ready))
}

pub fn token_extended() -> Decision<()> {
    Decision::new(()).with_condition(token_valid())
}

fn token_valid() -> Desired {
    Desired::yes(ConditionType::JoinCredentialValid, Reason::TokenValid)
}

/// The node has its certificate. It may lose the certificate until it has `joined`, and no second one is issued.
pub fn token_used(joined: bool) -> Decision<()> {
    let used = Desired::yes(ConditionType::JoinCredentialValid, Reason::TokenUsed);
    Decision::new(()).with_condition(used.with_message(if joined {
        "the node has its certificate; the token was deleted"
    } else {
        "the certificate was issued and the token deleted. A machine that was interrupted before it stored the certificate cannot ask for another one: if its Node does not appear, delete the Machine, or let a MachineHealthCheck do so"
    }))
}

/// The node has not joined in time.
pub fn token_expired(object: &WindowsBootstrapConfig) -> Decision<()> {
    let message = format!(
        "the machine has not joined within {} s (spec.join.tokenMaxAgeSeconds), so its bootstrap token was withdrawn: it can no longer join. Look at the WindowsMachine for the cause, then delete the Machine, or let a MachineHealthCheck do so",
        object.spec.join.token_max_age_seconds
    );
    let no = |type_| Desired::no(type_, Reason::TokenExpired, message.clone());
    Decision::new(()).with_condition(no(ConditionType::JoinCredentialValid)).with_condition(no(ConditionType::Ready))
}

/// The configuration is being deleted, and its token would outlive it.
pub fn held(object: &WindowsBootstrapConfig, fault: Fault, cause: &str) -> Decision<()> {
    let expires =
        object.status.as_ref().and_then(|s| s.token_expires_at.as_ref()).map(|at| format!(", at the latest at {}", at.0)).unwrap_or_default();
    let message = format!("it goes when its bootstrap token can be deleted or has expired{expires}: {cause}");
    Decision::new(()).with_condition(Desired::no(ConditionType::Ready, fault.reason(), message))
}

/// Whether a configuration may be released although its token may still exist: the cluster cannot be used, and the token has expired. The
/// last report of a token may have been lost, but no token is created or extended after the deletion was requested. Without a report and
/// without a kubeconfig, there is nothing to wait for.
pub fn may_leave_token(object: &WindowsBootstrapConfig, fault: Option<Fault>, now: Timestamp) -> bool {
    let Some(fault) = fault else { return false };
    let reported = object.status.as_ref().and_then(|s| s.token_expires_at.as_ref()).map(|expires| expires.0);
    if reported.is_none() && fault == Fault::KubeconfigMissing {
        return true;
    }
    let life = SignedDuration::from_secs(object.spec.join.token_ttl_seconds);
    let asked = object.metadata.deletion_timestamp.as_ref().and_then(|asked| asked.0.checked_add(life).ok());
    reported.max(asked).is_none_or(|expired| expired <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_problem_has_its_reason_and_is_looked_at_again_if_it_can_be_fixed_elsewhere() {
        for (problem, reason, again) in [
            (DataProblem::TooLarge, Reason::PayloadTooLarge, false),
            (DataProblem::Incompatible, Reason::Incompatible, false),
            (DataProblem::InvalidSpec, Reason::InvalidSpec, false),
            (DataProblem::ValueMissing, Reason::SecretMissing, true),
            (DataProblem::SecretTaken, Reason::SecretConflict, true),
            (DataProblem::Cluster(Fault::Forbidden), Reason::WorkloadClusterForbidden, true),
        ] {
            let decision = not_made(problem, "x".into());
            assert_eq!((decision.conditions[0].reason, decision.requeue_after.is_some()), (reason, again), "{problem:?}");
        }
    }

    #[test]
    fn a_machine_that_may_have_lost_its_certificate_is_told_apart() {
        let message = |joined| token_used(joined).conditions[0].message.clone();
        assert!(message(false).contains("delete the Machine") && !message(true).contains("delete the Machine"));
    }

    #[test]
    fn only_an_expired_token_is_left_in_a_cluster_that_cannot_be_used() {
        let config = |expires: Option<&str>| -> WindowsBootstrapConfig {
            serde_json::from_value(json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
                "metadata": {"name": "m", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"join": {"tokenTTLSeconds": 600}},
                "status": {"tokenExpiresAt": expires}}))
            .unwrap()
        };
        let before = Some("2026-01-01T00:05:00Z");
        for (expires, fault, now, expected) in [
            (before, Some(Fault::Unreachable), "2026-01-01T00:10:00Z", true),
            // The token may have been extended, and the report was lost.
            (before, Some(Fault::Unreachable), "2026-01-01T00:09:59Z", false),
            (Some("2026-01-01T00:20:00Z"), Some(Fault::Unreachable), "2026-01-01T00:10:00Z", false),
            // The token may have been created, and the report was lost.
            (None, Some(Fault::Unreachable), "2026-01-01T00:09:59Z", false),
            (None, Some(Fault::Unreachable), "2026-01-01T00:10:00Z", true),
            (None, Some(Fault::KubeconfigMissing), "2026-01-01T00:00:00Z", true),
            (before, Some(Fault::KubeconfigMissing), "2026-01-01T00:09:59Z", false),
            (before, None, "2026-01-01T00:10:00Z", false),
        ] {
            assert_eq!(may_leave_token(&config(expires), fault, now.parse().unwrap()), expected, "{expires:?} {fault:?} {now}");
        }
    }
}
