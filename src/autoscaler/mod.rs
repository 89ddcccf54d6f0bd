//! The externalgrpc server: cluster-autoscaler scales WindowsNodePools that nothing owns (`docs/design/cluster-api.md#node-groups-over-grpc`).
//!
//! ```text
//!   server (TLS) → service (one call: observe → decide → one write) → change, group, template (pure)
//! ```
//!
//! Answers come from the caches of the watches; no call waits for a VM or a hypervisor. A call changes one object, the pool, in one write that is
//! refused if another client wrote first. So a crash falls before or after the write, and a repeated call finds it done.

pub mod change;
pub mod group;
mod limit;
pub mod server;
pub mod service;
pub mod template;
pub mod tls;
pub mod wire;

#[cfg(test)]
mod tests;

pub use self::service::{NodeGroups, ServiceHandle};
