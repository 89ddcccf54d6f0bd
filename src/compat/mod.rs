//! WHICH VERSIONS WORK TOGETHER (pure): Kubernetes × Windows × container runtime × pause image × CNI × cloudbase-init ×
//! hypervisor.
//!
//! All knowledge is in `compat.toml`, with source and date. An *edge* is a set of components that depend on each other. Its rows are
//! read like the rules of a firewall: the first match decides, and without a match the answer is unknown. [`answer`] checks every
//! edge of a [`Question`] and, if the answer is not yes, finds the nearest set that is known to work.

mod data;
mod part;
mod show;
mod solve;
mod spec;
mod version;

pub use self::data::{Data, Edge, Row, Verdict, data};
pub use self::part::{Component, Part, PartError, Question};
pub use self::show::{markdown, table};
pub use self::solve::{Answer, Change, Finding, Nearest, answer};
pub use self::spec::{Incompatible, check, hypervisor, newer_than_server, pause_image};

#[cfg(test)]
mod tests;
