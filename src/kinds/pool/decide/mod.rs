//! WindowsNodePool: how many machines are created, which machines are removed, and when (`docs/design/cluster-api.md#machine-pools`).
//!
//! [`request`] is the desired state, [`member`] the state of each machine, [`batch`] the next batch, [`removal`] how a machine is removed,
//! [`build`] the objects of a new machine, [`template`] the hash that reveals an outdated machine, [`in_place`] the changes without another VM.

pub mod batch;
pub mod build;
pub mod in_place;
pub mod member;
pub mod messages;
pub mod removal;
pub mod request;
pub mod situation;
pub mod step;
pub mod template;
pub(super) mod view;

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
