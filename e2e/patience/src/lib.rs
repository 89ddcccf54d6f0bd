//! Waits of tests, by one measure: each is for a state, has a deadline for an idle machine, and reports the last observation when it
//! misses the deadline. It must not know the awaited state.
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
