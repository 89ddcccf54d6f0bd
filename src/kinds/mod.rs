//! One folder per kind, each of the same shape:
//!
//! | File | What it is |
//! |---|---|
//! | `triggers` | the triggers for a pass |
//! | `reconcile` | the pass, as a table of contents: observe, decide, act, report |
//! | `context` | the context that the steps of a pass share, and how the status is written |
//! | `memory` | the facts that this process remembers between passes |
//! | `observe` | reads caches, the hypervisor and the workload cluster |
//! | `decide` | pure: the next step |
//! | `report`, `messages` | pure: the status and the texts that follow |
//! | the rest | the calls and writes of one step |
//!
//! The `mod.rs` of each kind states what a pass may write. No driver is named here, and the Kubernetes API is reached through `kube_api/` only.

pub mod bootstrap_config;
pub mod control_plane;
pub mod definitions;
mod fleet;
pub mod hypervisor;
pub mod machine;
mod machine_template;
#[cfg(test)]
mod mirrored;
#[cfg(test)]
mod model;
pub mod pool;
mod run;
pub(crate) mod shared;
pub mod windows_cluster;

pub use self::run::{Parts, run};
