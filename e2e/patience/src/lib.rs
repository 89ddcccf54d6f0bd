//! Waits of tests, by one measure: each is for a state, has a deadline that is written for an idle machine, and says what was seen last when it
//! is missed. It must not know what is waited for.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "test code: it fails by panicking and lives by the clock"
)]

mod stretch;
mod wait;

pub use self::stretch::{Patience, stretch};
pub use self::wait::{Observation, pending, step, wait_for, within};
