//! THE ONLY CODE THAT TALKS TO THE KUBERNETES API: the management cluster here, workload clusters in [`workloads`].
//!
//! Every write names the UID of the object that was read, so that a recreated object is never written with the state of its predecessor. This
//! code decides nothing.

mod budget;
pub mod cluster;
pub mod csr;
mod definitions;
pub mod drain;
pub mod error;
pub mod events;
mod finalizers;
mod gate;
pub mod guarded;
mod in_cluster;
pub mod join_rights;
mod json;
mod keeping;
mod kept;
pub mod lease;
pub mod limits;
pub mod linux_side;
#[cfg(test)]
pub(crate) mod mock;
pub mod nodes;
mod pages;
pub mod review;
pub mod rights;
pub mod survey;
pub mod token;
pub mod watches;
pub mod windows_side;
pub mod workload;
pub mod workloads;
