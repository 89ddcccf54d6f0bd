//! Proves a driver at a user's endpoint: the part of its contract that needs only [`Driver`](crate::hypervisor::Driver), with VMs that are created
//! for it and always removed. Nothing without the mark of the run is touched.

mod bench;
mod cases;
mod ledger;
mod outcome;
mod proof;
mod removal;
pub mod report;
mod run;
#[cfg(test)]
mod tests;
mod trial;

pub use self::bench::{Bench, Connect};
pub use self::cases::{CASES, Case};
pub use self::ledger::{Ledger, left};
pub use self::outcome::{Outcome, Verdict};
pub use self::proof::prove;
pub use self::removal::remove;
pub use self::run::{LENGTH, Run};
