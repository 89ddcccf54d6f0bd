//! The condition types and reasons that CAPW reports to users, and the one rule by which a condition changes.

mod blame;
mod classification;
mod condition_type;
mod desired;
mod find;
mod reason;

pub use self::blame::{Blame, Severity};
pub use self::condition_type::ConditionType;
pub use self::desired::{Desired, apply};
pub use self::find::{find, is_true, problem};
pub use self::reason::Reason;

#[cfg(test)]
mod tests;
