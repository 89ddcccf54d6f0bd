//! WindowsNodePool: how many machines are made, which ones go, and when (`docs/design/cluster-api.md#machine-pools`).
//!
//! [`request`] is what is asked for, [`member`](mod@member) what each machine is, [`decide`](mod@decide) what is done next, [`removal`] how a machine is removed,
//! [`build`] the objects of a new one, [`template`] what makes a machine outdated, [`in_place`] what changes without another VM.

pub mod build;
pub mod decide;
pub mod in_place;
pub mod member;
mod messages;
pub mod removal;
pub mod report;
pub mod request;
pub mod situation;
pub mod template;

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use decide::{PoolStep, Why, decide, nodes_refused, refused};
pub use member::{Known, member};
pub use messages::unread;
pub use situation::{Failure, Failures, Goal, Member, ObservedPool, Replace, State};
