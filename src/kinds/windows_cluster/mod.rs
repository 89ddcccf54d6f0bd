//! WindowsCluster: ready at once; reports which hypervisors its machines may use, and whether Windows nodes can join the cluster's network.
//! The decisions are in [`decide::step`], [`decide::network`] and [`crate::components`].
//!
//! Writes its finalizer and its status; in the workload cluster, the objects of `windows_side` and `linux_side`.

mod context;
pub mod decide;
mod ending;
mod linux_side;
mod probes;
mod reconcile;
pub mod report;
mod triggers;
mod windows_pods;
mod windows_side;
mod writes;

pub use self::context::Context;
pub use self::reconcile::reconcile;
pub use self::triggers::triggers;
