//! Definitions of our kinds: migrates the objects of each kind to the current storage version, so that an older version can be removed
//! (`docs/versions.md#stored-versions`). The decisions are in [`decide`].
//!
//! Writes each object once, without a change, then `status.storedVersions` and an annotation of the definition. Nothing watches the
//! definitions: versions change when CAPW is upgraded, and later changes are found by the next check.

pub mod decide;
mod reconcile;

pub use self::reconcile::{Context, run};
