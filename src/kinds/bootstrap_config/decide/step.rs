//! WindowsBootstrapConfig: when to create the token, the Secret and the report, and when to delete the token
//! (`docs/design/cluster-api.md#bootstrap-configuration`, `docs/design/faults.md#the-bootstrap-token`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::bootstrap_config::{FINALIZER, WindowsBootstrapConfig};
use crate::api::capi::Endpoint;
use crate::api::condition::{self, ConditionType, Desired, Reason};
use crate::api::machine::{HostNamePolicy, WindowsMachine};
use crate::api::name::{HostName, ProviderId, base36};
use crate::compat;
use crate::domain::age::seconds;
use crate::domain::decision::Decision;
use crate::domain::gate::{Gate, paused_condition};
use crate::domain::identity::{NodeIdentity, future_provider_id};
use crate::domain::owner::{NodeRequest, Owner, TargetCluster, data_secret};
use crate::guards::Guard;

/// The time the kubelet gets to fetch its certificate with the token, in a watch that it may have to reopen.
const FETCH_SECONDS: i64 = 10;

/// Everything that the decision depends on.
pub struct ObservedConfig<'a> {
    pub object: &'a WindowsBootstrapConfig,
    pub owner: &'a Owner,
    pub cluster: Option<&'a TargetCluster>,
    /// The machine that will get the data, if it is a WindowsMachine.
    pub infrastructure: Infrastructure<'a>,
    /// Since when a client certificate is known to be issued for the token of this machine.
    pub certificate_issued: Option<Timestamp>,
}

/// Who creates the VM.
#[derive(Clone, Debug)]
pub enum Infrastructure<'a> {
    /// Another provider, which chooses the identity and the host name of the node.
    Foreign,
    /// A WindowsMachine that does not exist yet.
    Unseen,
    Ours(&'a WindowsMachine),
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum BootstrapStep {
    Ignore,
    Wait,
    /// Store the finalizer before anything is created in the workload cluster.
    Adopt,
    /// The Machine already has its data (after `clusterctl move` or a restore): report that, create nothing.
    Restore {
        secret: String,
    },
    /// Create the token (or find the earlier one), then the Secret, then report. Each part finds what an earlier try left.
    MakeData {
        endpoint: Endpoint,
    },
    /// The token is valid until then.
    ExtendToken {
        expires: Timestamp,
    },
    /// The token was used, or it is too old.
    DeleteToken {
        /// The token is too old, and its machine has not joined.
        expired: bool,
    },
    /// The object is deleted: remove the token and the requests that were sent with it.
    CleanUp,
}

pub fn decide(s: &ObservedConfig<'_>, now: Timestamp) -> Decision<BootstrapStep> {
    match Gate::of(&s.object.metadata, FINALIZER, s.owner, s.cluster) {
        Gate::Closed => Decision::new(BootstrapStep::Ignore),
        Gate::Paused(why) => Decision::new(BootstrapStep::Wait).with_condition(paused_condition(Some(why))),
        // The status may not list all that was created, because of a crash before the report or a move to another management cluster.
        Gate::Leaving => Decision::new(BootstrapStep::CleanUp),
        Gate::Open { ours } => decide_life(s, ours, now),
    }
}

fn decide_life(s: &ObservedConfig<'_>, ours: bool, now: Timestamp) -> Decision<BootstrapStep> {
    let Some(owner) = s.owner.request() else {
        if data_secret(s.object).is_some() {
            // Nothing is to be created any more, and the status is still true.
            return Decision::new(BootstrapStep::Wait);
        }
        return waiting(Reason::WaitingForClusterInfrastructureReady, "its Machine, or the pool that owns it, is not there (yet)", s, now);
    };
    match data_secret(s.object) {
        // A Cluster that does not exist (yet) may be paused.
        Some(_) if s.cluster.is_none() => Decision::new(BootstrapStep::Wait),
        // The finalizer was removed by something else. Without it, a token may outlive its machine.
        Some(_) if !ours && Guard::ConfigFinalizer.holds() => Decision::new(BootstrapStep::Adopt),
        Some(_) => keep_token(s, owner, now),
        None => make_data(s, owner, ours, now),
    }
}

fn make_data(s: &ObservedConfig<'_>, owner: &NodeRequest, ours: bool, now: Timestamp) -> Decision<BootstrapStep> {
    // A Cluster that does not exist (yet) may be paused.
    let Some(cluster) = s.cluster else {
        return waiting(Reason::WaitingForClusterInfrastructureReady, "its Cluster is not there (yet)", s, now);
    };
    if let Some(secret) = owner.data_secret.clone() {
        return Decision::new(BootstrapStep::Restore { secret });
    }
    if owner.is_control_plane {
        return Decision::new(BootstrapStep::Wait).with_condition(Desired::no(
            ConditionType::Ready,
            Reason::ControlPlaneMachineRefused,
            "Windows cannot run a control plane: use WindowsBootstrapConfigTemplate for workers only",
        ));
    }
    // Reported at once: incompatible versions do not become compatible with time.
    if let Some(Err(wrong)) = owner.version.as_deref().map(|version| compat::check(&s.object.spec, version)) {
        return Decision::new(BootstrapStep::Wait).with_condition(Desired::no(ConditionType::Ready, Reason::Incompatible, wrong.to_string()));
    }
    if !cluster.infrastructure_provisioned {
        return waiting(Reason::WaitingForClusterInfrastructureReady, format!("Cluster {} reports no infrastructure yet", owner.cluster), s, now);
    }
    if !cluster.control_plane_initialized {
        return waiting(
            Reason::WaitingForControlPlaneInitialized,
            format!("the control plane of Cluster {} is not initialized", owner.cluster),
            s,
            now,
        );
    }
    let Some(endpoint) = &cluster.endpoint else {
        return waiting(Reason::WaitingForControlPlaneInitialized, format!("Cluster {} has no spec.controlPlaneEndpoint yet", owner.cluster), s, now);
    };
    // The pod network decides whether the Node starts with the taint of a network that is still to come.
    if cluster.pod_network.is_none() {
        let message = format!(
            "the WindowsCluster of Cluster {} is to bring the pod network to Windows nodes, and has not read yet which one it is; see its condition \
             NetworkCompatible",
            owner.cluster
        );
        return waiting(Reason::WaitingForClusterInfrastructureReady, message, s, now);
    }
    let wait = |what: &str| waiting(Reason::Provisioning, format!("WindowsMachine {} {what}", owner.infrastructure.name), s, now);
    match s.infrastructure {
        Infrastructure::Unseen => return wait("is not there (yet)"),
        // The kubelet's configuration holds the provider ID, which depends on the hypervisor.
        Infrastructure::Ours(machine) if future_provider_id(machine).is_none() => return wait("has no hypervisor yet; see its conditions"),
        _ => {}
    }
    if !ours && Guard::ConfigFinalizer.holds() {
        return Decision::new(BootstrapStep::Adopt);
    }
    Decision::new(BootstrapStep::MakeData { endpoint: endpoint.clone() })
}

/// Whether the cluster has everything that its machines need for their data.
pub fn may_have_data(cluster: &TargetCluster) -> bool {
    cluster.infrastructure_provisioned && cluster.control_plane_initialized && cluster.endpoint.is_some() && cluster.pod_network.is_some()
}

/// Keeps the token alive while the machine has not joined, but not beyond the maximum age.
fn keep_token(s: &ObservedConfig<'_>, owner: &NodeRequest, now: Timestamp) -> Decision<BootstrapStep> {
    let Some((created, expires)) = live_token(s.object) else {
        return Decision::new(BootstrapStep::Wait);
    };
    let joined = owner.node.is_some();
    let fetched = s.certificate_issued.map(|since| seconds(since, now) - FETCH_SECONDS);
    if joined || fetched.is_some_and(|over| over >= 0) {
        return Decision::new(BootstrapStep::DeleteToken { expired: false });
    }
    if let Some(over) = fetched {
        return Decision::new(BootstrapStep::Wait).requeue_after(Duration::from_secs(over.unsigned_abs()));
    }
    let join = &s.object.spec.join;
    let last = created.saturating_add(SignedDuration::from_secs(join.token_max_age_seconds)).unwrap_or(created);
    if now >= last {
        return Decision::new(BootstrapStep::DeleteToken { expired: true });
    }
    let ttl = join.token_ttl_seconds;
    let next = now.saturating_add(SignedDuration::from_secs(ttl)).unwrap_or(now).min(last);
    let left = -seconds_signed(expires, now);
    if left * 2 <= ttl && next > expires {
        return Decision::new(BootstrapStep::ExtendToken { expires: next });
    }
    // Requeue at half the token's life, or at the end.
    let look = (left - ttl / 2).max(1).min(seconds(now, last).max(1));
    Decision::new(BootstrapStep::Wait).requeue_after(Duration::from_secs(look.unsigned_abs()))
}

fn seconds_signed(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs()
}

/// Creation and expiry of the token, while there is a token to keep.
fn live_token(object: &WindowsBootstrapConfig) -> Option<(Timestamp, Timestamp)> {
    let status = object.status.as_ref()?;
    status.token_id.as_ref().filter(|_| !is_token_gone(object))?;
    let time = |t: &Option<Time>| t.as_ref().map(|t| t.0);
    Some((time(&status.token_created_at)?, time(&status.token_expires_at)?))
}

/// Whether the token was deleted because it was used or too old. Such a token is never recreated.
pub fn is_token_gone(object: &WindowsBootstrapConfig) -> bool {
    let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::JoinCredentialValid).is_some_and(|c| c.reason == Reason::TokenUsed || c.reason == Reason::TokenExpired)
}

/// The public half of this object's token. It is known before the token is created, so that a retry finds the token.
pub fn token_id(object: &WindowsBootstrapConfig) -> String {
    let stored = object.status.as_ref().and_then(|s| s.token_id.clone());
    stored.unwrap_or_else(|| base36(object.metadata.uid.as_deref().unwrap_or_default().as_bytes(), 6))
}

/// The Node to delete with a Cluster that is being deleted. Cluster API deletes the Node of a Machine unless the Cluster is being
/// deleted, because it expects the API server to be removed too. Where the API server stays, CAPW must delete the Node.
///
/// Core accepts any Node with the provider ID; here, the Node must have the machine's name too. The WindowsMachine is deleted by now, but a
/// name that must not be shortened needs no shortening. If the Cluster is deleted at once, core has no time to find the Node.
pub fn node_to_delete(request: &NodeRequest) -> Option<NodeIdentity> {
    let provider_id = ProviderId::parse(request.provider_id.as_deref()?).ok()?;
    let name = HostName::choose(&request.infrastructure.name, provider_id.vm, HostNamePolicy::Auto).ok()?;
    let is_other = request.node.as_deref().is_some_and(|node| node != name.as_str());
    (!is_other).then_some(NodeIdentity { name, provider_id })
}

fn waiting(why: Reason, message: impl Into<String>, s: &ObservedConfig<'_>, now: Timestamp) -> Decision<BootstrapStep> {
    crate::domain::decision::waiting(BootstrapStep::Wait, &s.object.metadata, why, message, now)
}

#[cfg(test)]
mod tests;
