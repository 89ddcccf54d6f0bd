//! The management cluster as controllers use it: every write of an object is recorded in [`Written`], and every report uses the same path.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::written::Written;
use crate::api::condition::{self, ConditionType, Reason};
use crate::api::fit::fitted;
use crate::kube_api::cluster::{Cluster, Kind};
use crate::kube_api::error::ApiError;
use crate::kube_api::events::Events;

/// The clock, injected by the composition root.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Creates the secret half of a bootstrap token: 16 characters of 0-9a-z.
pub type NewTokenSecret = Arc<dyn Fn() -> SecretString + Send + Sync>;

/// The client, events and clock of all controllers.
pub struct Management {
    /// For reads, and for writes of objects that have no cache here or that are created or deleted.
    pub cluster: Cluster,
    pub events: Events,
    pub written: Written,
    pub clock: Clock,
}

/// A status with conditions.
pub trait Conditioned: Serialize + DeserializeOwned + JsonSchema + PartialEq + Default + Sync + 'static {
    fn conditions(&self) -> &[Condition];
}

macro_rules! conditioned {
    ($($status:ty),+) => {
        $(impl Conditioned for $status {
            fn conditions(&self) -> &[Condition] {
                &self.conditions
            }
        })+
    };
}

conditioned!(
    crate::api::machine::WindowsMachineStatus,
    crate::api::pool::WindowsNodePoolStatus,
    crate::api::bootstrap_config::WindowsBootstrapConfigStatus,
    crate::api::cluster::WindowsClusterStatus,
    crate::api::control_plane::ExternalControlPlaneStatus,
    crate::api::hypervisor::WindowsHypervisorStatus
);

impl Conditioned for crate::api::machine::WindowsMachineTemplateStatus {
    fn conditions(&self) -> &[Condition] {
        &[]
    }
}

impl Management {
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Whether a cached object is older than what this process wrote to it last.
    pub fn is_stale<K: Kind>(&self, cached: &K) -> bool {
        self.written.is_stale(cached)
    }

    /// Merges `patch` into the object that was read. An object that was deleted and recreated is a conflict.
    pub async fn merge<K: Kind>(&self, object: &K, patch: Value) -> Result<K, ApiError> {
        let written = self.cluster.merge(object, patch).await?;
        self.written.note(&written);
        Ok(written)
    }

    /// Merges `spec` into the spec of the object that was read.
    pub async fn merge_spec<K: Kind>(&self, object: &K, spec: Value) -> Result<K, ApiError> {
        let written = self.cluster.merge_spec(object, spec).await?;
        self.written.note(&written);
        Ok(written)
    }

    /// Stores our finalizer. Returns `false` if it exists already.
    pub async fn add_finalizer<K: Kind>(&self, object: &K, finalizer: &str) -> Result<bool, ApiError> {
        let written = self.cluster.add_finalizer(object, finalizer).await?;
        Ok(written.inspect(|written| self.written.note(written)).is_some())
    }

    /// Stores our finalizer and these annotations in one write.
    pub async fn adopt<K: Kind>(&self, object: &K, finalizer: &str, annotations: Value) -> Result<K, ApiError> {
        let finalizers: Vec<&str> = object.finalizers().iter().map(String::as_str).chain([finalizer]).collect();
        let metadata = json!({ "resourceVersion": object.resource_version(), "finalizers": finalizers, "annotations": annotations });
        self.merge(object, json!({ "metadata": metadata })).await
    }

    /// Removes our finalizer. Returns `false` if the finalizer or the object does not exist.
    pub async fn remove_finalizer<K: Kind>(&self, object: &K, finalizer: &str) -> Result<bool, ApiError> {
        let written = self.cluster.remove_finalizer(object, finalizer).await?;
        Ok(written.inspect(|written| self.written.note(written)).is_some())
    }

    /// Writes the status `next` unless it equals the stored one (a missing status counts as empty). Logs the changes in one line and sends an event
    /// for every new problem.
    pub async fn report<K: Kind, S: Conditioned>(&self, object: &K, manager: &'static str, current: Option<&S>, next: &S) -> Result<(), ApiError> {
        if is_stored(current, next) {
            return Ok(());
        }
        let fitted = fitted(next);
        let next = fitted.as_ref().unwrap_or(next);
        if fitted.is_some() && is_stored(current, next) {
            return Ok(());
        }
        let written = self.cluster.apply_status(object, manager, next).await?;
        self.written.note(&written);
        let changed = changes(current.map(Conditioned::conditions).unwrap_or_default(), next.conditions());
        log(&changed);
        for (problem, reason) in changed.into_iter().filter_map(|c| Some((c, condition::problem(c)?))) {
            if problem.type_ != ConditionType::Ready || !is_said_elsewhere(reason, next.conditions()) {
                self.events.warning(object, reason, &problem.type_, &problem.message).await;
            }
        }
        Ok(())
    }
}

fn is_stored<S: Conditioned>(current: Option<&S>, next: &S) -> bool {
    match current {
        Some(current) => current == next,
        None => *next == S::default(),
    }
}

/// Returns the conditions of `next` whose status or reason differ from before.
fn changes<'a>(before: &[Condition], next: &'a [Condition]) -> Vec<&'a Condition> {
    let same = |c: &Condition| condition::find(before, &c.type_).is_some_and(|b| b.status == c.status && b.reason == c.reason);
    next.iter().filter(|c| !same(c)).collect()
}

/// Logs all changed conditions in one line; the span names the object.
fn log(changed: &[&Condition]) {
    let texts: Vec<String> = changed
        .iter()
        .filter(|c| c.type_ != ConditionType::Paused || c.status == "True")
        .map(|c| format!("{}={} ({})", c.type_, c.status, c.reason))
        .collect();
    let problem = changed.iter().find(|c| condition::problem(c).is_some());
    match problem {
        _ if texts.is_empty() => {}
        Some(problem) => tracing::warn!(conditions = texts.join(", "), "{}", problem.message),
        None => tracing::info!(conditions = texts.join(", ")),
    }
}

/// Whether a more exact condition of the same object has the reason of Ready: then one event is enough.
fn is_said_elsewhere(reason: Reason, conditions: &[Condition]) -> bool {
    let exact = reason.condition().filter(|exact| *exact != ConditionType::Ready);
    exact.and_then(|exact| condition::find(conditions, exact)).is_some_and(|exact| exact.reason == reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::condition::Desired;
    use crate::engine::caches::Caches;
    use crate::kube_api::mock::step;
    use crate::testing::{read, shared};

    /// A configuration has no condition that is about the kubeconfig alone.
    #[tokio::test]
    async fn what_only_ready_says_gets_an_event_and_what_another_condition_says_too_gets_one() {
        use crate::api::bootstrap_config::{WindowsBootstrapConfig, WindowsBootstrapConfigStatus};
        let object = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
            "metadata": {"name": "m", "namespace": "lab", "uid": "u", "resourceVersion": "1"}, "spec": {}});
        let status = || step("PATCH *", object.clone());
        let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
        for (said, requests) in
            [(vec![ConditionType::Ready], vec![status(), event()]), (vec![ConditionType::Ready, ConditionType::Available], vec![status(), event()])]
        {
            let (all, script) = shared(Caches::empty(), 1, requests);
            let said: Vec<Desired> = said.into_iter().map(|type_| Desired::no(type_, Reason::KubeconfigMissing, "no Secret")).collect();
            let conditions = condition::apply(&[], &said, Some(1), all.management.now());
            let next = WindowsBootstrapConfigStatus { conditions, ..WindowsBootstrapConfigStatus::default() };
            all.management.report(&read::<WindowsBootstrapConfig>(object.clone()), "test", None, &next).await.unwrap();
            assert_eq!(script.seen()[1].body["reason"], "KubeconfigMissing");
        }
    }
}
