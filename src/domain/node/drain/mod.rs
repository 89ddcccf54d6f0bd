//! Drains a Node before its machine is removed: cordon, evict, wait. In standalone pools only; under Cluster API, core does it.
//!
//! The rules are as in `kubectl drain` and in core's Machine controller (`docs/design/cluster-api.md#draining`), with one addition: Windows pods
//! that hang in termination (kubernetes-sigs/cluster-api#12304) are deleted by force after a while.

mod decide;
mod limits;
mod messages;
mod pod;
#[cfg(test)]
mod properties;
mod step;
#[cfg(test)]
mod tests;

pub use self::decide::{ObservedNode, decide};
pub(super) use self::limits::elapsed;
pub use self::limits::{EXCLUDE_ANNOTATION, Limits, is_excluded, is_over, since};
pub use self::messages::{conditions, given_up};
pub use self::pod::PodOnNode;
pub use self::step::{DrainStep, Left, Plan, Victim};
