//! What every controller runs on: its loop, what triggers it, the watches with their caches, and the connections to workload clusters.

pub mod certificates;
pub mod controller;
mod follower;
pub mod nodes;
pub mod owners;
pub mod reporter;
pub mod stores;
pub mod triggers;
pub mod watch;
