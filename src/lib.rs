//! CAPW: a Cluster API infrastructure, bootstrap and control plane provider that makes Windows Server worker nodes.
//!
//! ```text
//!             main → cli → operator                     knows everything; owns clock, randomness, environment
//!                             │
//!                           kinds ──► autoscaler          one folder per kind: triggers, reconcile, observe, act
//!         ┌───────────────────┼──────────────────────────┐
//!       engine ──────────► kube_api   hypervisor/<driver>  telemetry
//!         │                 │               │
//!         └────► kinds/*/{decide,report,messages}         pure: no async, no client, no clock, no randomness
//!                    │      │               │
//!                  domain   bootstrap ◄─────┘             pure: what the decisions of several kinds share; how a node is set up
//!                    │ └──────┬──┘
//!                diagnosis  compat                       pure: signs → cause and remedy; versions → yes or the nearest set. Their rules are data
//!                components                              pure: objects of a cluster → its pod network, what keeps Windows nodes from it, what brings it
//!                    └──── vm, api, causes, guards       pure words; registry: values that are shared by key
//! ```
//!
//! `observe (cluster + hypervisor) → decide (pure) → act → report (status, event, metrics)`. What a pass of a kind may write is said at the top of its
//! folder's `mod.rs`; a crash between two writes is repaired by the next pass, which observes again.
//! The test below reads the `use crate::` lines and enforces the arrows.

pub mod api;
pub mod autoscaler;
pub mod bootstrap;
mod causes;
pub mod cli;
pub mod compat;
pub mod components;
pub mod diagnosis;
pub mod domain;
pub mod engine;
mod guards;
pub mod hypervisor;
pub mod image;
pub mod kinds;
pub mod kube_api;
pub mod operator;
mod registry;
pub mod telemetry;
pub mod vm;

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod judges;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod previous;
#[cfg(test)]
mod references;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod surfaces;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod unused;
#[cfg(test)]
mod wording;
