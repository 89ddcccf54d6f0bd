//! WindowsNodePool: how many machines are made, which ones go, and when (`docs/design/cluster-api.md#machine-pools`).
//!
//! [`request`] is what is asked for, [`member`] what each machine is, [`batch`] what is done next, [`removal`] how a machine is removed,
//! [`build`] the objects of a new one, [`template`] what makes a machine outdated, [`in_place`] what changes without another VM.

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
