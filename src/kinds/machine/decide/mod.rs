//! Decides the next step of a WindowsMachine: [`step`] before its hypervisor has answered, [`vm`] afterwards. Pure.

pub mod completion;
pub mod driver_failure;
pub mod guest;
pub mod join;
pub mod phase;
pub mod placement;
pub mod step;
pub mod streak;
pub mod vm;
