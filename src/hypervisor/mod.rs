//! The drivers that create VMs: one trait, what several of them need, and one folder per driver in `drivers`.
//!
//! A driver translates and calls; it decides nothing, knows no Kubernetes object and writes no status. Its contract
//! (docs/design/drivers.md): after any prefix of the requests of one [`Driver::advance`], [`Driver::detach`] or [`Driver::retire`],
//! [`Driver::observe`] reports what exists and the next call continues; a foreign VM is never touched; absence is proven by reading VM, disks
//! and configuration drive.

#[cfg(test)]
mod contract;
mod driver;
pub mod drivers;
mod fresh;
mod gate;
mod gates;
mod https;
mod listing;
pub mod login;
mod machine;
pub mod observed;
pub mod prove;
mod shutdowns;
mod ssh;
mod tls;
mod wire;

pub use self::driver::{Caps, Driver, DriverStep, ImageFirmware};
pub use self::gate::Kept;
pub use self::listing::{Leftover, Listing, Row, Wanted};
pub use crate::vm::{DriverError, Endpoint};
