//! The base of every controller: its loop, the triggers of a pass, the watches with their caches, the management cluster, and the connections to
//! workload clusters.

mod answers;
mod backoff;
pub mod caches;
mod certificate_requests;
mod certificates;
pub mod controller;
mod followed;
mod identities;
mod linux_side_watch;
pub mod linux_sides;
pub mod made_secrets;
pub mod management;
mod merged;
mod node_watch;
pub mod nodes;
pub mod outcome;
pub mod owners;
mod pending;
pub mod roles;
mod serving_certificates;
mod shown;
pub mod triggers;
mod unreadable;
pub mod unreadable_reports;
pub mod watch;
mod watch_task;
pub mod workload_clusters;
pub mod written;
