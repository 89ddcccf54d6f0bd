//! The `simulated` driver: VMs are directories, power is a line in a file, guests are tasks.
//!
//! All state of a VM is on disk, so that it survives a kill of the operator at any moment and two operators can share it. [`driver`]
//! is the asynchronous interface; [`datacenter`] has the rules and [`record`] the files.

mod datacenter;
mod driver;
mod fault;
pub mod guest;
pub mod record;
#[cfg(test)]
mod tests;

pub use self::driver::{Clock, SimulatedDriver};
