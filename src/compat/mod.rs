//! WHAT GOES TOGETHER (pure): Kubernetes × Windows × container runtime × pause image × CNI × cloudbase-init.
//!
//! Everything that is known stands in `compat.toml`, with source and date; nothing is known here. An *edge* is a set of components
//! that depend on each other, with rows that are read like those of a firewall: the first that matches decides. What no row
//! matches is unknown, and said to be. [`answer`] looks at every edge of a [`Question`] and, if the answer is not yes, finds the
//! nearest set that is known to work.

mod data;
mod part;
mod show;
mod solve;
mod spec;
mod version;

pub use data::{Data, Edge, Row, Verdict, data};
pub use part::{Component, Part, PartError, Question};
pub use show::{markdown, table};
pub use solve::{Answer, Change, Finding, Nearest, answer};
pub use spec::{Incompatible, check, pause_image};

#[cfg(test)]
mod tests;
