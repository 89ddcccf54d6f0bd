//! The externalgrpc server: cluster-autoscaler scales WindowsNodePools that nothing owns (`docs/design/cluster-api.md#node-groups-over-grpc`).
//!
//! ```text
//!   server (TLS) → service (one call: observe → decide → one write) → change, group, template (pure)
//! ```
//!
//! Answers come from the caches of the watches; no call waits for a VM or asks a hypervisor. What a call changes is one write of
//! one object, the pool, refused if anybody else wrote it: a crash falls before it or after it, and a repeated call finds it done.

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
