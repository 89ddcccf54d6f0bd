//! The status of a WindowsCluster.

use jiff::Timestamp;

use crate::api::cluster::{WindowsCluster, WindowsClusterStatus};
use crate::api::components::{Components, ComponentsMode, LinuxSideMode};
use crate::api::condition::{ConditionType, Desired};
use crate::domain::conditions::carry_over;

/// Returns `next` with these conditions.
pub fn status(object: &WindowsCluster, mut next: WindowsClusterStatus, said: &[Desired], now: Timestamp) -> WindowsClusterStatus {
    (next.conditions, next.observed_generation) = carry_over(&next.conditions, next.observed_generation, said, object.metadata.generation, now);
    next
}

/// Removes the conditions of components that are no longer requested, unless they are among the desired ones. `asked`: the components, unless
/// their mode is `Off`.
/// The objects that CAPW brought stay reported while the cluster cannot be read.
pub fn drop_conditions(next: &mut WindowsClusterStatus, said: &[Desired], asked: Option<&Components>, is_unread: bool) {
    let is_changed = asked.is_some_and(|components| components.linux_side == LinuxSideMode::Change);
    let is_brought = asked.is_some_and(|components| components.mode == ComponentsMode::Auto);
    for (is_said, type_) in [
        (asked.is_some(), ConditionType::NetworkCompatible),
        (asked.is_some(), ConditionType::SchedulingClean),
        (is_changed, ConditionType::LinuxSideReady),
        (is_brought || is_unread, ConditionType::ComponentsReady),
    ] {
        let is_said = is_said || said.iter().any(|desired| desired.type_ == type_);
        next.conditions.retain(|condition| is_said || condition.type_ != type_.as_str());
    }
}
