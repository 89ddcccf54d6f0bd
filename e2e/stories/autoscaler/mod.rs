//! Stories with the real cluster-autoscaler, the program that `$CLUSTER_AUTOSCALER` names, and the real scheduler. They are
//! ignored by default: that program is not published in a form that could be built here.
//!
//! The stories apply the blocks of `docs/autoscaler.md`, so they test the page.

mod cluster_api;
mod page;
mod parts;
mod standalone;
