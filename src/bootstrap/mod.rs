//! FACTS → BYTES (pure): all data that turns a Windows machine into a node.
//!
//! ```text
//! facts ─► check::validate ─► render ─► check::lint ─► stages ─► delivery
//!                             documents                plan      user data, answer file, drive
//! ```
//!
//! [`fn@render`] turns [`facts::BootstrapFacts`] into a plan and the user data that carries it; [`delivery::build`] converts both into the
//! form that the machine's channel needs; [`read`] unpacks the bytes again, as a guest does. No clock, no randomness, no
//! network: the same facts give the same bytes.

mod check;
pub mod delivery;
mod digest;
mod error;
pub mod facts;
pub mod finding;
pub mod paths;
pub mod plan;
pub mod render;
mod rendered;
mod runner;
mod secrets;
mod stages;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

pub use self::delivery::read;
pub use self::delivery::user_data::UserData;
pub use self::digest::ca_hash;
pub use self::error::{DataSize, RenderError};
pub use self::facts::BootstrapFacts;
pub use self::plan::{Plan, explain};
pub use self::rendered::{Bootstrap, render};
#[cfg(test)]
pub(crate) use self::sample::sample_plan;
pub use self::secrets::Secrets;
