//! WHY A NODE DOES NOT COME UP (pure): symptoms (observations) in, findings (cause and remedy) out.
//!
//! The knowledge is data: [`rules.toml`](rules.toml) has one rule per failure mode, [`FailureCode`](crate::vm::FailureCode) one entry
//! per failure code of the node plan, for a guest that gave up at a step that no rule matches. A rule is a few regular expressions and the
//! sources that each applies to. Objects of the cluster are converted to lines first ([`objects`]), so one mechanism reads all input.
//!
//! Used for the conditions of a machine whose guest gave up, or whose Node is missing or not Ready ([`of_guest`],
//! [`of_node_ready`]), and by `capw diagnose`.

mod engine;
mod guest;
pub mod logs;
pub mod objects;
mod rules;
mod symptom;

pub use self::engine::{Evidence, Finding, diagnose};
pub use self::guest::{Assessment, of_guest, of_machine, of_node_ready};
pub use self::rules::{Certainty, Rule, Rules, rules};
pub use self::symptom::{Source, Symptom};

#[cfg(test)]
mod tests;
