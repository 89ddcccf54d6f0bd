//! WindowsHypervisor: one listing per tick, whatever the number of machines, with back-off per endpoint. A machine whose VM has changed
//! gets a pass. The decisions are in [`decide::listing`].

mod context;
pub mod decide;
mod hypervisors;
pub mod inventory;
mod login;
mod observe;
mod orphans;
mod reconcile;
pub mod report;
mod triggers;

pub use self::context::Context;
pub use self::hypervisors::Hypervisors;
pub use self::reconcile::{FINALIZER, reconcile};
pub use self::triggers::triggers;
