//! The removal of a machine's Node.

pub mod drain;
pub mod teardown;
