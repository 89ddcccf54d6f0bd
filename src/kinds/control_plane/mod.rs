//! ExternalControlPlane: probes the API server, keeps the Secrets that Cluster API reads, reports. The decisions are in [`decide`].

mod clients;
mod context;
pub mod decide;
mod reconcile;
pub mod report;
mod rights;
mod secrets;
mod triggers;

pub use self::context::Context;
pub use self::reconcile::reconcile;
pub use self::triggers::triggers;
