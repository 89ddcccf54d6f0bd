//! The data for a machine's first start, in the form that its channel needs (docs/design/node-plan.md).

pub(super) mod archive;
pub mod config_drive;
pub(super) mod error;
pub mod guest_info;
mod instance;
pub(super) mod iso;
pub mod no_cloud;
pub mod read;
mod seed;
pub mod unattend;
pub(super) mod user_data;
pub mod windows_setup;

#[cfg(test)]
mod tests;

pub use self::instance::Instance;
pub use self::seed::{SeedImage, build};
