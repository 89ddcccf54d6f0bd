//! CAPW: a Cluster API infrastructure, bootstrap and control plane provider that creates Windows Server worker nodes.
//!
//! ```text
//!             main → cli → operator                     uses every layer; owns clock, randomness, environment
//!                             │
//!                           kinds ──► autoscaler          one folder per kind: triggers, reconcile, observe, act
//!         ┌───────────────────┼──────────────────────────┐
//!       engine ──────────► kube_api   hypervisor/<driver>  telemetry
//!         │                 │               │
//!         └────► kinds/*/{decide,report,messages}         pure: no async, no client, no clock, no randomness
//!                    │      │               │
//!                  domain   bootstrap ◄─────┘             pure: the rules that several kinds share; the setup of a node
//!                    │ └──────┬──┘
//!                diagnosis  compat                       pure: signs → cause and remedy; versions → yes or the nearest set. Their rules are data
//!                components                              pure: objects of a cluster → its pod network, the obstacles for Windows nodes, the provider
//!                    └──── vm, api, causes, guards       pure types; registry: values that are shared by key;
//!                                                         request_info: the meaning of a request to an API server; xml: a writer
//! ```
//!
//! `observe (cluster + hypervisor) → decide (pure) → act → report (status, event, metrics)`. The top of each kind's `mod.rs` lists what its passes
//! may write; a crash between two writes is repaired by the next pass, which observes again.
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
pub mod request_info;
pub mod telemetry;
pub mod vm;
mod xml;

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
