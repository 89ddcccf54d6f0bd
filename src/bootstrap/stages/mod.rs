//! The items of a machine's plan: the steps on the node, their order, and the reason for each.
//!
//! Conditions are decided here, not on the node. There is one file per stage, in the order of [`fn@plan`]; the files that items write come from
//! `render/`.

mod builder;
mod finish;
mod gmsa;
mod hardening;
mod kube_proxy;
mod kubelet;
mod network;
mod plan;
mod programs;
mod proxy;
mod registry;
mod runtime;
mod steps;
#[cfg(test)]
mod tests;
mod upkeep;
mod windows;

pub(super) use self::plan::plan;
