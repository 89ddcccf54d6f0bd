//! The providers that a process runs.

/// The providers that this process runs; three Deployments may share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub infrastructure: bool,
    pub bootstrap: bool,
    pub control_plane: bool,
}
