//! WindowsBootstrapConfig: observe, decide ([`decide::step`]), act, report.
//!
//! A pass that creates the data creates up to three objects, in this order: the rights of joining nodes, the token, the bootstrap Secret.
//! Then it reports. A pass that starts after a crash finds each of them.

mod clean_up;
mod context;
mod data;
mod data_secret;
pub mod decide;
mod facts;
mod machine_pool;
mod memory;
mod observe;
mod reconcile;
pub mod report;
mod secret_values;
mod token;
mod triggers;

pub use self::context::Context;
pub use self::reconcile::reconcile;
pub use self::triggers::triggers;
