//! WindowsMachine: observe, decide ([`decide::step`], [`decide::vm`]), act, report.
//!
//! A pass may complete the Node, then makes at most one call of the driver that changes the VM, or takes one step of the node teardown, and then
//! writes the object once: its metadata, its provider ID or its status. What the hypervisor reserved is stored before it is used. The
//! last pass deletes a Node that is left before it removes the finalizer.

mod act;
mod context;
pub mod decide;
mod drain;
mod endings;
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
