//! WindowsMachine: observe, decide ([`decide::step`], [`decide::vm`]), act, report.
//!
//! A pass may complete the Node. Then it changes the VM with at most one driver call, or takes one step of the node teardown. Then it
//! writes the object once: its metadata, its provider ID or its status. Ids that the hypervisor reserved are stored before they are used. The
//! last pass deletes a leftover Node before it removes the finalizer.

mod act;
mod context;
pub mod decide;
mod drain;
mod failures;
mod memory;
mod node_completion;
mod node_teardown;
mod observe;
mod reconcile;
pub mod report;
mod seed;
mod triggers;

pub use self::context::Context;
pub use self::reconcile::reconcile;
pub use self::triggers::triggers;
