//! Which providers a process is.

/// Which providers this process is; three Deployments may share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub infrastructure: bool,
    pub bootstrap: bool,
    pub control_plane: bool,
}
