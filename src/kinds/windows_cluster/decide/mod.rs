//! Decides the next step of a WindowsCluster ([`step`]), and the network of its Windows nodes. Pure.

pub mod ending;
pub mod network;
pub mod planned;
pub mod probes;
pub mod step;
pub mod windows_side;
