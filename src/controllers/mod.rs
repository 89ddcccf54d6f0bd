//! OBSERVE → DECIDE → ACT → REPORT, thin.

pub mod shell;
pub mod watch;
