//! The rules that the decisions of several kinds share. Pure: no client, no clock, no randomness.

pub mod age;
pub mod conditions;
pub mod decision;
pub mod fault;
pub mod gate;
pub mod identity;
pub mod node;
pub mod owner;
pub mod pod;
pub mod pod_network;
