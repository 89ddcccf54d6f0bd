//! Definitions of our kinds: brings the objects of each to the version that is stored today, so that an older one can go
//! (`docs/versions.md#stored-versions`). The decisions are in [`decide`].
//!
//! Writes each object once, without a change, then `status.storedVersions` and an annotation of the definition. Nobody watches
//! definitions: versions change when CAPW is upgraded, and what changes later is seen at the next look.

pub mod decide;
mod reconcile;

pub use self::reconcile::{Context, run};
