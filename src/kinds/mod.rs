//! One folder per kind, each of the same shape:
//!
//! | File | What it is |
//! |---|---|
//! | `triggers` | what triggers a pass |
//! | `reconcile` | the pass, as a table of contents: observe, decide, act, report |
//! | `context` | what the steps of a pass share, and how the status is written |
//! | `memory` | what this process remembers between passes |
//! | `observe` | reads caches, the hypervisor and the workload cluster |
//! | `decide` | pure: what comes next |
//! | `report`, `messages` | pure: the status and the texts that follow |
//! | the rest | the calls and writes of one step |
//!
//! What a pass may write is said at the top of each kind's `mod.rs`. No driver is named here, and the Kubernetes API is reached through `kube_api/` only.

pub mod bootstrap_config;
pub mod control_plane;
pub mod definitions;
mod fleet;
pub mod hypervisor;
pub mod machine;
mod machine_template;
#[cfg(test)]
mod model;
pub mod pool;
pub mod run;
pub(crate) mod shared;
pub mod windows_cluster;

pub use self::run::{Parts, run};
