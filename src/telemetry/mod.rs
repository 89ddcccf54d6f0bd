//! Logs, metrics and the answers to probes. Independent of the code that it observes: names are passed in as text.

pub mod build;
pub mod diagnostics;
pub mod fleet;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod passes;
pub mod process;
pub mod readiness;
pub mod requests;

pub use self::metrics::Metrics;
pub use self::passes::{Pass, Passes};
pub use self::readiness::Readiness;
