//! Fault plans: the life of a standalone pool (create, scale down, roll out, replace, delete while a machine joins) is repeated, each time
//! with other faults, in another order of events, or without one of our guards. Whatever fails: a machine never has two VMs, the VM
//! of a living machine is never removed, and the end is the same as in a life without faults.

mod api;
mod budget;
mod life;
mod mutations;
mod plan;
mod plans;
mod world;
