//! The Node of a machine: how it leaves.

pub mod drain;
pub mod teardown;
