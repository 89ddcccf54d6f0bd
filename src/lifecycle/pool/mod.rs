//! WindowsNodePool: how many machines are made, which ones go, and when (`capi-contract.md` §4).
//!
//! [`situation`] says what is known of a machine, [`decide`] what is done next, [`template`] what makes a machine outdated,
//! [`in_place`] what changes without another VM.

pub mod decide;
pub mod in_place;
pub mod member;
pub mod report;
pub mod situation;
pub mod template;
mod messages;

#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use decide::{Step, Why, decide};
pub use member::{Known, member};
pub use situation::{Failure, Failures, Goal, Member, Replace, Situation, State};
