//! Stories with the real cluster-autoscaler, the program that `$CLUSTER_AUTOSCALER` names, and the real scheduler. They are
//! ignored unless they are asked for: that program is not published in a form that could be built here.
//!
//! What a user would apply is taken from the blocks of `docs/autoscaler.md`, so the page is what is tested.

mod cluster_api;
mod page;
mod parts;
mod standalone;
