//! The Node of a machine: how it is completed, and how it leaves.

pub mod completion;
pub mod drain;
pub mod teardown;
