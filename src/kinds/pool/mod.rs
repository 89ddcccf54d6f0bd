//! WindowsNodePool: observe, decide ([`decide`]), act, report.
//!
//! A pass does the first of these that is due, and a later pass does the rest: restore lost owners of configurations, hand machines over,
//! complete them (configuration, labels), create or remove one batch. Each may be many writes, in parallel. Then the pool itself is
//! written: `spec.providerIDList`, then the status; and labels and taints of Nodes follow the template.

mod configs;
mod context;
pub mod decide;
mod ensure;
mod hand_over;
mod machines;
mod memory;
mod node_groups;
mod node_labels;
mod observe;
mod parallel;
mod reconcile;
pub mod report;
pub mod template;
mod triggers;

pub use self::context::Context;
pub use self::node_groups::CachedNodeGroups;
pub use self::reconcile::reconcile;
pub use self::triggers::triggers;
