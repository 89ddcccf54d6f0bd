//! REPORT: status only when it changed, one event and one log line per change of mind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use super::Context;
use super::shell::ReconcileError;
use crate::api::condition::{self, ConditionType, Reason};
use crate::cluster::Kind;

/// A status with conditions.
pub trait Conditioned: Serialize + PartialEq + Default + Sync {
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

/// Writes `next` unless it is what is stored (nothing at all is as good as an empty status), then tells of every condition that changed its mind.
pub async fn report<K: Kind, S: Conditioned>(
    ctx: &Context,
    object: &K,
    manager: &'static str,
    current: Option<&S>,
    next: &S,
) -> Result<(), ReconcileError> {
    if is_stored(current, next) {
        return Ok(());
    }
    let written = ctx.cluster.apply_status(object, manager, next).await?;
    ctx.written.note(&written);
    let changed = changes(current.map(Conditioned::conditions).unwrap_or_default(), next.conditions());
    log(&changed);
    for (problem, reason) in changed.into_iter().filter_map(|c| Some((c, condition::problem(c)?))) {
        if problem.type_ != ConditionType::Ready || !is_said_elsewhere(reason) {
            ctx.events.warning(object, reason, &problem.type_, &problem.message).await;
        }
    }
    Ok(())
}

fn is_stored<S: Conditioned>(current: Option<&S>, next: &S) -> bool {
    match current {
        Some(current) => current == next,
        None => *next == S::default(),
    }
}

/// Conditions of `next` whose status or reason differ from before.
fn changes<'a>(before: &[Condition], next: &'a [Condition]) -> Vec<&'a Condition> {
    let same = |c: &Condition| condition::find(before, &c.type_).is_some_and(|b| b.status == c.status && b.reason == c.reason);
    next.iter().filter(|c| !same(c)).collect()
}

/// One line for one change of mind, however many conditions it touches; the span names the object.
fn log(changed: &[&Condition]) {
    let words: Vec<String> = changed
        .iter()
        .filter(|c| c.type_ != ConditionType::Paused || c.status == "True")
        .map(|c| format!("{}={} ({})", c.type_, c.status, c.reason))
        .collect();
    let problem = changed.iter().find(|c| condition::problem(c).is_some());
    match problem {
        _ if words.is_empty() => {}
        Some(problem) => tracing::warn!(conditions = words.join(", "), "{}", problem.message),
        None => tracing::info!(conditions = words.join(", ")),
    }
}

/// Ready repeats what a more exact condition says: one event is enough.
fn is_said_elsewhere(reason: Reason) -> bool {
    reason.condition().is_some_and(|exact| exact != ConditionType::Ready)
}
