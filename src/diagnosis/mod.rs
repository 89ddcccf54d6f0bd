//! WHY A NODE DOES NOT COME UP (pure): signs, i.e. what was seen, in; findings, i.e. cause and remedy, out.
//!
//! What is known is data: [`rules.toml`](rules.toml), one rule per failure mode, and [`FailureCode`](crate::vm::FailureCode) for a
//! guest that gives up at something that no rule knows. A rule is a few regular expressions and where each counts; objects of the
//! cluster become lines first ([`objects`]), so that one mechanism reads everything.
//!
//! The engine is used for the conditions of a machine whose guest has given up or whose Node does not come, or comes and is not Ready
//! ([`of_guest`], [`of_node_ready`]), and by `capw diagnose`.

mod book;
mod engine;
mod guest;
pub mod logs;
pub mod objects;
mod sign;

pub use book::{Book, Certainty, Rule, book};
pub use engine::{Evidence, Finding, diagnose};
pub use guest::{Symptoms, of_guest, of_machine, of_node_ready};
pub use sign::{Sign, Source};

#[cfg(test)]
mod tests;
